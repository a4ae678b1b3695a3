"""What may become of each target of a world, from what the world is and before it is played."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.worlds.flaws import Flaw, See
from tests.worlds.transfers.flaws import KINDS, TransferFlawGroup
from tests.worlds.transfers.gse import RETRYABLE_CODES, RUNNING, UPLOAD_CODES, WORD, code_of, words_of
from tests.worlds.transfers.naming import TargetGoal, TransferNames
from tests.worlds.transfers.repository import is_spoiled
from tests.worlds.transfers.world import TransferWorld

ANY = "*"
CANCELLED = f"Failed/cancelled/{ANY}"
LATE = f"Timeout/deadline/{ANY}"
NEVER_REPORTED = f"Failed/never_reported/{ANY}"
NO_FILE = (f"Failed/file_unavailable/{ANY}", f"Timeout/file_unavailable/{ANY}")
RUNS_OUT = f"Timeout/deadline/{RUNNING}"
NO_CODE = -1
GSE_CODE = "Failed/gse_code/{code}"
CAUSES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("fails", "fails_for_now", "unknown_code", "code_is_a_word"), (GSE_CODE,)),
    **dict.fromkeys(("old_agent", "container_gone", "flaps"), (GSE_CODE,)),
    "runs_for_ever": (RUNS_OUT,),
    "fails_then_runs_for_ever": ("Timeout/deadline/{code}",),
    **dict.fromkeys(("never_reported", "empty_at_first"), (NEVER_REPORTED,)),
    **dict.fromkeys(("upload_fails", "upload_cannot"), ("Failed/upload_failed/{code}",)),
    "create_refused": ("Failed/gse_refused/{code}",),
    "agent_gone": (f"Failed/agent_offline/{ANY}",),
    **dict.fromkeys(("create_lost", "create_unreadable", "results_down"), (LATE,)),
    "task_forgotten": (LATE, f"Failed/gse_refused/{ANY}"),
    **dict.fromkeys(("file_cut", "file_short", "file_is_another", "file_missing", "repository_down"), NO_FILE),
}
TELLS_NOBODY = frozenset({"never_reported", "empty_at_first", "flaps", "create_lost", "results_down", "task_forgotten"})
"""With these the file may arrive, and GSE does not say so, or not in time."""
RETRIED = {*RETRYABLE_CODES, *UPLOAD_CODES}


@dataclass(frozen=True)
class TargetExpectation:
    """The allowed outcomes of one target; Success with the file is always allowed."""

    causes: frozenset[str] = frozenset()
    """Other ends: status, reason and code; `*` means any code."""
    words: tuple[tuple[str, str], ...] = ()
    """Causes whose message must hold GSE's words, and these."""
    is_visible: bool = True
    """Whether it can be known outside the host that its file is wrong."""
    may_have_it: bool = False
    """Whether the file may be there although another end is shown, because GSE never reports it."""


def expect_target(names: TransferNames, goal: TargetGoal, *, is_cancelled: bool) -> TargetExpectation:
    """Say what may become of a goal, with or without a cancellation."""
    parts = [_expect_of_flaw(names, flaw, goal) for flaw in names.world.flaws]
    causes = {cause for part in parts for cause in part.causes} | ({CANCELLED} if is_cancelled else set())
    causes |= set(_list_unusual_ends(names.world, goal, causes))
    blocked = names.world.group(TransferFlawGroup.TERMINATE) is not None
    return TargetExpectation(
        causes=frozenset(causes),
        words=tuple(pair for part in parts for pair in part.words),
        is_visible=all(part.is_visible for part in parts),
        # What GSE is not made to give up may arrive after all.
        may_have_it=blocked or any(part.may_have_it for part in parts),
    )


def _expect_of_flaw(names: TransferNames, flaw: Flaw, goal: TargetGoal) -> TargetExpectation:
    kind = KINDS[flaw.name]
    is_missed = kind.group is TransferFlawGroup.TARGET and not names.world.is_struck(goal.host)
    is_missed |= kind.group is TransferFlawGroup.REPOSITORY and not is_spoiled(names, goal.content)
    if is_missed or flaw.passes:
        return TargetExpectation()
    code, words = code_of(flaw), words_of(names, flaw)
    causes = frozenset(_list_causes(flaw))
    told: tuple[tuple[str, str], ...] = ()
    if code == WORD:
        told = tuple((cause, WORD) for cause in causes)
    elif code != RUNNING and flaw.name != "flaps":
        told = tuple((cause, words) for cause in causes if cause.endswith(f"/{code}"))
    return TargetExpectation(
        causes=causes,
        words=told,
        is_visible=kind.see is not See.NOBODY,
        may_have_it=flaw.name
        in {"never_reported", "empty_at_first", "flaps", "create_lost", "results_down", "task_forgotten"},
    )


def _list_unusual_ends(world: TransferWorld, goal: TargetGoal, causes: Collection[str]) -> Iterator[str]:
    """List what comes of flaws together, or of one that is spent on another wish for the same host."""
    runs_in_the_end = "fails_then_runs_for_ever" in {each.name for each in world.flaws} and world.is_struck(goal.host)
    for flaw in world.flaws:
        if flaw.name == "upload_fails" and flaw.passes and (RUNS_OUT in causes or runs_in_the_end):
            yield f"Timeout/deadline/{code_of(flaw)}"
        is_shared = sum(goal.host in wish.hosts for wish in world.wishes) > 1
        # A task that was begun without an answer is seen by nobody, and neither is its failure.
        is_unseen = any(each.name in {"create_lost", "create_unreadable"} for each in world.flaws)
        if flaw.name == "fails_then_runs_for_ever" and world.is_struck(goal.host) and (is_shared or is_unseen):
            yield RUNS_OUT


def _list_causes(flaw: Flaw) -> Iterator[str]:
    code = code_of(flaw)
    for reason in CAUSES.get(flaw.name, ()):
        yield reason.format(code=NO_CODE if code == WORD else code)
    if code in RETRIED and flaw.name != "flaps":
        yield f"Timeout/deadline/{code}"
