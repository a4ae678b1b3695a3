"""The judge of worlds of transfers sees loss, doubling, another cause and false success; options come in pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from tests.worlds.flaws import Flaw
from tests.worlds.pairwise import pairs_of
from tests.worlds.transfers.expecting import expect_target
from tests.worlds.transfers.flaws import KINDS, TransferFlawGroup
from tests.worlds.transfers.judging import judge_world
from tests.worlds.transfers.naming import TransferNames
from tests.worlds.transfers.options import OPTIONS, pairwise_rows, plain_row
from tests.worlds.transfers.seen import JobLine, OnDisk, SeenJob, SeenTarget, SentTask, TransferObservations
from tests.worlds.transfers.world import (
    DISTINCT_WISHES_MAX,
    SUITE_WORLDS,
    PlannedRequest,
    TransferWorld,
    WorldFile,
    WorldHost,
    draw_round,
    draw_world,
    list_smaller,
)
from tests.worlds.verdict import Ending

JOB = "AsyncDownloadJob:2:1:/etc/app.conf:7"
FATAL = 122


def make_names(*flaws: str, hosts: int = 2, wishes: int = 1) -> TransferNames:
    """A world of plain hosts that all want one file; flaws of targets hit the first host."""
    world = TransferWorld(
        seed=next(seed for seed in range(100) if not flaws or _strikes_the_first(seed, flaws, hosts)),
        hosts=tuple(WorldHost(number=number) for number in range(hosts)),
        files=(WorldFile(path=0, content=0),),
        wishes=tuple(
            PlannedRequest(file=0, hosts=tuple(range(hosts)), options=dict(plain_row())) for _ in range(wishes)
        ),
        flaws=tuple(Flaw(name=name, passes=False, dial=0) for name in flaws),
    )
    return TransferNames(world, 1)


def _strikes_the_first(seed: int, flaws: tuple[str, ...], hosts: int) -> bool:
    world = TransferWorld(
        seed=seed,
        hosts=tuple(WorldHost(number=number) for number in range(hosts)),
        files=(WorldFile(path=0, content=0),),
        wishes=(),
        flaws=tuple(Flaw(name=name, passes=False, dial=0) for name in flaws),
    )
    return world.group(TransferFlawGroup.TARGET) is None or [world.is_struck(host) for host in range(hosts)] == [
        True,
        False,
    ]


def make_seen(
    names: TransferNames, *changes: dict[str, Any], sends: int = 1, fired: tuple[str, ...] = ()
) -> TransferObservations:
    """All as it should be: each host has its file; `changes` alter one host each, in their order."""
    wish = names.world.wishes[0]
    targets = [
        SeenTarget(job_id=JOB, goal=names.goal(wish, host), status="Success", code=0, disk=OnDisk.RIGHT)
        for host in wish.hosts
    ]
    for place, change in enumerate(changes):
        targets[place] = replace(targets[place], **change)
    return with_job(
        names,
        TransferObservations(
            targets=targets,
            sends={names.spot(each.goal): [SentTask(float(number)) for number in range(sends)] for each in targets},
            fired=frozenset(fired or names.world.flaw_names),
        ),
    )


def with_job(names: TransferNames, seen: TransferObservations) -> TransferObservations:
    """Have the job and its workflow agree with the targets."""
    counts = {
        status: sum(each.status == status for each in seen.targets) for status in ("Success", "Failed", "Timeout")
    }
    status = next((each for each in ("Failed", "Timeout") if counts[each]), "Success")
    lines = [_line(names, each) for each in seen.targets]
    seen.jobs = [SeenJob(JOB, "first", status, counts, lines, troubles=counts["Failed"] + counts["Timeout"])]
    seen.outcomes = {JOB: counts}
    return seen


def _line(names: TransferNames, target: SeenTarget) -> JobLine:
    goal = target.goal
    signature = names.signature(goal.content)
    return JobLine(signature, goal.user, goal.folder, goal.agent_id, goal.container_id, target.cause)


FAILED = {
    "status": "Failed",
    "reason": "gse_code",
    "code": FATAL,
    "message": "fails in world-1",
    "disk": OnDisk.NOTHING,
}


@pytest.mark.parametrize(
    ("flaw", "change", "ending"),
    [
        ("", {}, Ending.EQUAL),
        ("records_twice", {}, Ending.EQUAL),
        # loss: Success is shown, and the file is missing, or another one
        ("", {"disk": OnDisk.NOTHING}, Ending.SILENT),
        ("fails", {"disk": OnDisk.NOTHING}, Ending.SILENT),
        ("", {"disk": OnDisk.OTHER}, Ending.SILENT),
        # which cannot be seen if GSE itself is wrong
        ("success_without_file", {"disk": OnDisk.NOTHING}, Ending.INVISIBLE),
        ("other_bytes_arrive", {"disk": OnDisk.OTHER}, Ending.INVISIBLE),
        # a right cause, another one, one without GSE's words, one without need
        ("fails", FAILED, Ending.FAILED),
        ("fails", FAILED | {"code": 119}, Ending.WRONG_CAUSE),
        ("fails", FAILED | {"status": "Timeout", "reason": "deadline"}, Ending.WRONG_CAUSE),
        ("fails", FAILED | {"message": "The file could not be sent."}, Ending.WRONG_CAUSE),
        ("", FAILED, Ending.NEEDLESS),
        ("records_twice", FAILED, Ending.NEEDLESS),
        # a failure is shown, and the file is there; that is right if GSE never reports
        ("fails", FAILED | {"disk": OnDisk.RIGHT}, Ending.SILENT),
        ("never_reported", {"status": "Failed", "reason": "never_reported", "code": None}, Ending.FAILED),
        # cancelled, with a cancellation and without one
        ("", {**FAILED, "reason": "cancelled", "code": None, "cancelled": True}, Ending.FAILED),
        ("", {**FAILED, "reason": "cancelled", "code": None}, Ending.NEEDLESS),
        ("", {**FAILED, "reason": "cancelled", "cancelled": True, "disk": OnDisk.RIGHT}, Ending.SILENT),
        ("", {"cancelled": True, "cancelled_early": True}, Ending.SILENT),
        ("", {"tasks_differ": "its tasks tell different things"}, Ending.SILENT),
    ],
)
def test_each_ending_of_a_target_is_told_apart(flaw: str, change: dict[str, Any], ending: Ending) -> None:
    """By what is shown, what is on the host, and what went wrong."""
    names = make_names(*filter(None, [flaw]))
    assert judge_world(names, make_seen(names, change)).ending is ending


def _lose_target(seen: TransferObservations) -> None:
    seen.jobs[0] = replace(seen.jobs[0], targets=seen.jobs[0].targets[1:])


def _list_twice(seen: TransferObservations) -> None:
    seen.jobs[0] = replace(seen.jobs[0], targets=[*seen.jobs[0].targets, seen.jobs[0].targets[0]])


def _count_wrong(seen: TransferObservations) -> None:
    seen.jobs[0] = replace(seen.jobs[0], counts={"Success": 1})


def _tell_other_status(seen: TransferObservations) -> None:
    seen.jobs[0] = replace(seen.jobs[0], status="Failed")


def _tell_troubles(seen: TransferObservations) -> None:
    seen.jobs[0] = replace(seen.jobs[0], troubles=1)


def _end_workflow_otherwise(seen: TransferObservations) -> None:
    seen.outcomes = {JOB: {"Success": 1, "Failed": 1}}


def _send_twice(seen: TransferObservations) -> None:
    seen.sends = {spot: [*sends, SentTask(9.0)] for spot, sends in seen.sends.items()}


def _see_nothing(seen: TransferObservations) -> None:
    seen.targets, seen.jobs, seen.outcomes = [], [], {}


@pytest.mark.parametrize(
    "plant",
    [
        *(_lose_target, _list_twice, _count_wrong, _tell_other_status, _tell_troubles, _end_workflow_otherwise),
        *(_send_twice, _see_nothing),
    ],
)
def test_what_differs_beside_targets_is_seen(plant: Callable[[TransferObservations], None]) -> None:
    """Loss and doubling in pages, wrong counts, another status, a second GSE task."""
    names = make_names()
    seen = make_seen(names)
    assert judge_world(names, seen).ending is Ending.EQUAL
    plant(seen)
    assert judge_world(names, seen).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("sends", "ending"),
    [
        ([SentTask(1.0)], Ending.EQUAL),
        ([SentTask(1.0, failed_at=2.0), SentTask(3.0)], Ending.EQUAL),
        ([SentTask(1.0, failed_at=4.0), SentTask(3.0)], Ending.SILENT),
        ([SentTask(1.0, failed_at=1.0), SentTask(1.5)], Ending.EQUAL),
        ([SentTask(1.0), SentTask(3.0, failed_at=4.0)], Ending.SILENT),
        ([SentTask(float(turn), failed_at=turn + 0.5) for turn in range(3)], Ending.EQUAL),
        ([SentTask(float(turn), failed_at=turn + 0.5) for turn in range(4)], Ending.SILENT),
    ],
)
def test_a_second_gse_task_needs_a_first_that_failed(sends: list[SentTask], ending: Ending) -> None:
    """Before the second began, and not more often than targets are sent again."""
    names = make_names()
    seen = make_seen(names)
    seen.sends = {names.spot(seen.targets[0].goal): sends}
    assert judge_world(names, seen).ending is ending
    seen.unanswered[names.spot(seen.targets[0].goal)] = 1
    assert judge_world(names, seen).ending is Ending.EQUAL


def test_what_never_ends_and_what_shows_nothing() -> None:
    """Neither is a success."""
    names = make_names("fails")
    seen = make_seen(names)
    seen.late = "one target is Running"
    assert judge_world(names, seen).ending is Ending.LATE
    quiet = make_seen(names)
    quiet.fired = frozenset()
    assert judge_world(names, quiet).ending is Ending.UNKNOWN


@pytest.mark.parametrize(
    ("wishes", "refused", "ending"),
    [
        (DISTINCT_WISHES_MAX, 1, Ending.NEEDLESS),
        (4 * DISTINCT_WISHES_MAX, 1, Ending.NEEDLESS),
        (4 * DISTINCT_WISHES_MAX + 2, 2, Ending.EQUAL),
        (4 * DISTINCT_WISHES_MAX + 2, 3, Ending.NEEDLESS),
    ],
)
def test_only_what_finds_no_room_is_refused(wishes: int, refused: int, ending: Ending) -> None:
    """Four windows take their share first."""
    names = make_names(wishes=wishes)
    seen = make_seen(names)
    seen.refusals["window_full"] = refused
    assert judge_world(names, seen).ending is ending
    seen.refusals["internal"] = 1
    assert judge_world(names, seen).ending is Ending.NEEDLESS


def test_rows_of_options_hold_every_pair() -> None:
    """In far fewer rows than there are combinations."""
    rows = pairwise_rows()
    found = set().union(*map(pairs_of, rows))
    for (one, values), (other, others) in combinations(OPTIONS.items(), 2):
        assert {frozenset({(one, value), (other, beside)}) for value in values for beside in others} <= found
    assert len(rows) <= 20


def test_worlds_are_the_same_for_a_seed_and_draw_everything() -> None:
    """Every flaw occurs, and its expected outcome is known before the world is played."""
    worlds = [draw_world(seed) for seed in range(1_000)]
    assert worlds[:50] == [draw_world(seed) for seed in range(50)]
    assert {flaw.name for world in worlds for flaw in world.flaws} == set(KINDS)
    for world in worlds:
        names = TransferNames(world, 1)
        for wish in world.wishes:
            for host in wish.hosts:
                expected = expect_target(names, names.goal(wish, host), is_cancelled=False)
                lasting = {flaw.name for flaw in world.flaws if not flaw.passes}
                assert not expected.causes or lasting


def test_every_flaw_comes_in_each_run_of_the_suite() -> None:
    """In few worlds, each with at most one of a group, and of another seed in other company."""
    rounds = [draw_round(seed, SUITE_WORLDS) for seed in range(20)]
    for names in rounds:
        assert len(names) == SUITE_WORLDS
        assert sorted(name for some in names for name in some) == sorted(KINDS)
        for some in names:
            groups = [KINDS[name].group for name in some]
            assert len(groups) == len(set(groups))
    assert len({str(names) for names in rounds}) == len(rounds)
    world = draw_world(7, forced=("fails", "create_lost"))
    assert world.flaw_names == ["fails", "create_lost"]


def test_smaller_worlds_are_smaller() -> None:
    """So that shrinking comes to an end."""
    for seed in range(50):
        world = draw_world(seed)
        for smaller in list_smaller(world):
            assert smaller != world
            assert len(smaller.wishes) >= 1
            assert all(cancel.wish < len(smaller.wishes) for cancel in smaller.cancels)
