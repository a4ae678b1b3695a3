"""The order in which messages are applied: coalescing, steps of a cycle, and which messages block others.

Modules stay equal if all of them apply the messages of a UPRN in the same order. Where one of them failed, later
messages must not overtake it in the others. A message is *touched* while a module has applied it, or may have, and it
is not done:

- a swap waits for each touched message that shares a UPRN with it, and for an earlier swap that does and will still be
  retried;
- a createUpdate or delete waits for a touched swap of its UPRN. A swap that misses a side is not touched, see
  `find_swap_obstacles`: the message that brings this side never waits for it.

createUpdates and deletes do not wait for each other: the last one wins. A touched message has begun and goes on; of two
touched swaps the earlier one goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from domain.addresses.messages import Topic
from domain.addresses.operations import (
    LiveUprnsAndAppliedOps,
    Module,
    Operation,
    OperationOutcome,
    OperationResult,
    UnansweredResult,
)


class CreateUpdateOrDeleteToCoalesce(NamedTuple):
    """A createUpdate or a delete that a cycle could take."""

    id: int
    uprn: int
    touched: bool = False
    """Whether a module has applied it, or may have."""


@dataclass(frozen=True, slots=True)
class ChosenAndSupersededWrites:
    winners: frozenset[int]
    superseded: dict[int, int]
    """The superseded messages, each with the message that superseded it."""
    heirs: frozenset[int]
    """Winners over a touched message: until they are done, modules may differ in that UPRN."""


def choose_last_write_of_each_uprn(writes: Sequence[CreateUpdateOrDeleteToCoalesce]) -> ChosenAndSupersededWrites:
    """Keep the last createUpdate or delete of each UPRN.

    Both jointly: a delete makes earlier createUpdates needless, and the other way round, since a createUpdate carries
    the whole address. Swaps are never coalesced.
    """
    winner_of = {each.uprn: each.id for each in sorted(writes)}
    losers = [each for each in writes if each.id != winner_of[each.uprn]]
    return ChosenAndSupersededWrites(
        winners=frozenset(winner_of.values()),
        superseded={each.id: winner_of[each.uprn] for each in losers},
        heirs=frozenset(winner_of[each.uprn] for each in losers if each.touched),
    )


STEP_MIN_MESSAGES: Final = 100
"""With fewer messages, an activity of its own costs more than it gains."""
STEP_GROUPS: Final = 8
"""Full groups of one activity: the engine's work for an activity is worth that of some 100 messages."""

CycleStep: TypeAlias = list[list[int]]
"""The messages of one activity: groups to apply one after the other, each of messages to send together."""


class SwapMessageUprns(NamedTuple):
    """A swap and the UPRNs that it exchanges."""

    id: int
    uprn_1: int
    uprn_2: int


def divide_cycle_capacity_among_topics(waiting: Sequence[int], threshold: int, reserved: int = 0) -> list[int]:
    """Return how many messages of each topic a cycle takes, in the order of priority.

    Args:
        waiting: The number of messages available of each topic.
        threshold: The capacity of the cycle.
        reserved: The number of messages reserved for each topic, as far as it has them.
    """
    taken: list[int] = []
    for place, count in enumerate(waiting):
        kept_free = sum(min(reserved, later) for later in waiting[place + 1 :])
        taken.append(min(count, max(0, threshold - sum(taken) - kept_free)))
    return taken


def group_swaps_without_shared_uprns(swaps: Iterable[SwapMessageUprns]) -> list[list[int]]:
    """Group swaps so that none shares a UPRN with another of its group; a later swap of a UPRN is in a later group.

    Swaps without a common UPRN commute, so applying the groups in their order equals applying the swaps in theirs.
    """
    found: list[list[int]] = []
    depths: dict[int, int] = {}
    for swap in swaps:
        depth = max(depths.get(swap.uprn_1, 0), depths.get(swap.uprn_2, 0))
        if depth == len(found):
            found.append([])
        found[depth].append(swap.id)
        depths[swap.uprn_1] = depths[swap.uprn_2] = depth + 1
    return found


def pack_or_split_groups_into_sequential_steps(groups: Iterable[Sequence[int]], size: int) -> list[CycleStep]:
    """Split groups into parts of at most `size` messages, and pack these into steps to run one after the other.

    A step has at most as many messages as `STEP_GROUPS` full parts, and at most `size` parts: swaps of one address are
    groups of one message each. Up to `STEP_MIN_MESSAGES` it has in any case: a history holds some ten thousand steps.
    """
    steps: list[CycleStep] = []
    room, most_parts = 0, max(size, STEP_MIN_MESSAGES)
    for part in (part for group in groups for part in _split_evenly(group, size)):
        if len(part) > room or len(steps[-1]) == most_parts:
            steps.append([])
            room = max(size * STEP_GROUPS, STEP_MIN_MESSAGES)
        steps[-1].append(part)
        room -= len(part)
    return steps


def split_into_parallel_steps(ids: Sequence[int], size: int, at_a_time: int) -> list[CycleStep]:
    """Split messages of different addresses into steps of about equal length, to run in parallel.

    Each group of a step has at most `size` messages, and a step has at most `STEP_GROUPS` groups.
    """
    useful = max(ceil(len(ids) / size), len(ids) // STEP_MIN_MESSAGES, 1)
    steps = max(min(at_a_time, useful), ceil(len(ids) / (size * STEP_GROUPS)))
    length = max(1, ceil(len(ids) / steps))
    return [_split_evenly(ids[start : start + length], size) for start in range(0, len(ids), length)]


def _split_evenly(ids: Sequence[int], size: int) -> list[list[int]]:
    """Split messages into as few parts of at most `size` as possible, of about equal length."""
    length = ceil(len(ids) / max(1, ceil(len(ids) / size))) or 1
    return [list(ids[start : start + length]) for start in range(0, len(ids), length)]


def split_by_size(ids: Sequence[int], sizes: Mapping[int, int], max_bytes: int) -> list[list[int]]:
    """Split messages into consecutive parts of at most `max_bytes`; one message alone may be larger.

    Args:
        sizes: The size of each message, in bytes; those that are not in it are small.
    """
    parts: list[list[int]] = []
    room = 0
    for id_ in ids:
        size = sizes.get(id_, 0)
        if not parts or size > room:
            parts.append([])
            room = max_bytes
        parts[-1].append(id_)
        room -= size
    return parts


class WaitKind(StrEnum):
    """Why a message is not done."""

    MISSING = "missing"
    """A module misses a side of the swap."""
    BEHIND = "behind"
    """It waits for another message."""
    REFUSED = "refused"
    """A module refused it."""
    FAILED = "failed"
    """A module gave no answer."""
    OVERTAKEN = "overtaken"
    """A later swap of one of its addresses was applied: this one never will be."""
    PAUSED = "paused"
    """A module is paused, and nothing else keeps the message."""


class WaitReason(BaseModel):
    """Why a message is not done; the log's `wait_reason`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: WaitKind | None = None
    module: Module | None = None
    """The first module that caused it."""
    modules: list[Module] = Field(default_factory=list)
    """All modules that caused it, where they are several."""
    uprn: int | None = None
    """For `missing`: the UPRN."""
    behind: int | None = None
    """For `behind` and `overtaken`: the id of the other message."""
    missing: list[int] = Field(default_factory=list)
    """All UPRNs that a module misses."""
    unsure: list[Module] = Field(default_factory=list)
    """Modules that may have applied it."""
    paused: list[Module] = Field(default_factory=list)
    """Modules that were paused at its last try; for `behind`, at that of the other message."""
    inherits: bool = False
    """Whether it superseded another message that some module may have applied."""

    @classmethod
    def from_column(cls, column: Mapping[str, Any] | None) -> Self:
        return cls() if column is None else cls.model_validate(column)

    def to_json(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    @property
    def has_unsure_or_inherited_effect(self) -> bool:
        """Whether it makes the message a touched one."""
        return bool(self.unsure or self.inherits)

    @property
    def is_only_for_paused_modules(self) -> bool:
        """Whether nothing but a pause keeps the message, or the one that it is behind."""
        return self.kind is WaitKind.PAUSED or (self.kind is WaitKind.BEHIND and bool(self.paused))

    def with_blocking_message(self, behind: int, paused: Sequence[Module] = ()) -> Self:
        """Return the reason of the same message when it is held back behind another, which waits for these pauses."""
        update: dict[str, object] = {"kind": WaitKind.BEHIND, "module": None, "modules": [], "uprn": None}
        return self.model_copy(update={**update, "behind": behind, "paused": list(paused)})


TOUCHED_FIELDS: Final = ("unsure", "inherits")
"""The fields of a stored reason that make a message touched, beside an acknowledgement."""


class MessageAboutToBeSent(NamedTuple):
    """A message that is about to be sent."""

    id: int
    topic: Topic
    uprns: tuple[int, ...]
    touched: bool = False


class UnfinishedMessage(NamedTuple):
    """A message that is not done."""

    id: int
    is_swap: bool
    uprns: tuple[int, ...]
    due: bool
    """Whether this cycle has it, or a later one will retry it."""
    touched: bool


def find_first_blocker_of_each_message(
    candidates: Sequence[MessageAboutToBeSent], unfinished: Iterable[UnfinishedMessage]
) -> dict[int, int]:
    """Return the messages that must not be sent yet, each with the id of one that it waits for."""
    by_uprn: dict[int, list[UnfinishedMessage]] = {}
    for neighbour in unfinished:
        for uprn in neighbour.uprns:
            by_uprn.setdefault(uprn, []).append(neighbour)
    if not by_uprn:
        return {}
    found = {each.id: _find_first_blocking_message(each, by_uprn) for each in candidates}
    return {id_: behind for id_, behind in found.items() if behind is not None}


def _find_first_blocking_message(
    message: MessageAboutToBeSent, by_uprn: Mapping[int, Sequence[UnfinishedMessage]]
) -> int | None:
    near = (each for uprn in message.uprns for each in by_uprn.get(uprn, ()) if each.id != message.id)
    goes_first = _blocks_swap if message.topic is Topic.SWAP else _blocks_write
    return min((each.id for each in near if goes_first(message, each)), default=None)


def _blocks_swap(swap: MessageAboutToBeSent, other: UnfinishedMessage) -> bool:
    is_earlier = other.id < swap.id
    if not other.is_swap:
        return other.touched
    return (other.touched and is_earlier) if swap.touched else (other.touched or (other.due and is_earlier))


def _blocks_write(write: MessageAboutToBeSent, other: UnfinishedMessage) -> bool:
    return other.is_swap and other.touched and not write.touched


class FailedLookup(NamedTuple):
    """That a module gave no usable answer to a lookup."""

    error: str
    is_paused: bool = False


def find_swap_obstacles(
    swap: Operation, lookups: Mapping[Module, LiveUprnsAndAppliedOps | FailedLookup]
) -> dict[Module, OperationResult]:
    """Return why an unacknowledged swap must not be sent: the modules that miss a side or cannot be asked.

    A swap goes to all modules or to none. If it were applied in one while another misses a side, the createUpdate that
    brings this side would come before the swap there, and after it elsewhere. Once it is sent, no side goes away:
    whatever has begun with one of its UPRNs was done before, and later messages wait for it.

    A worker that sent it before may have died before it wrote that down. So a swap that a module has applied is sent,
    whatever sides are left there; and while a module cannot be asked, it may be that module.
    """
    answers = {module: _build_swap_obstacle_if_any(swap, each) for module, each in lookups.items()}
    found = {module: answer for module, answer in answers.items() if answer}
    has_begun = any(
        isinstance(each, LiveUprnsAndAppliedOps) and swap.op_id in each.applied for each in lookups.values()
    )
    all_asked = all(isinstance(each, LiveUprnsAndAppliedOps) for each in lookups.values())
    return {} if has_begun and all_asked else found


def _build_swap_obstacle_if_any(
    swap: Operation, lookup: LiveUprnsAndAppliedOps | FailedLookup
) -> OperationResult | None:
    if isinstance(lookup, FailedLookup):
        return UnansweredResult(op_id=swap.op_id, outcome=OperationOutcome.FAILED, **lookup._asdict())
    missing = [uprn for uprn in (swap.uprn, swap.uprn_2) if uprn and uprn not in lookup.live]
    return OperationResult(op_id=swap.op_id, outcome=OperationOutcome.MISSING, missing=missing) if missing else None
