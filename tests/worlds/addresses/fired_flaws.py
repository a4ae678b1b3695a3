"""Which flaws of a world really went wrong, by what was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from domain.addresses.messages import Topic
from tests.worlds.addresses.flaws import Group
from tests.worlds.addresses.observation import MessageReport, Observation
from tests.worlds.addresses.publications import POISONS, REFUSED
from tests.worlds.addresses.world import DEAD_LETTERED, LATER, NEVER

if TYPE_CHECKING:
    from tests.worlds.addresses.world_run import WorldRun

Check: TypeAlias = "Callable[[WorldRun, Observation], bool]"


def list_fired(run: WorldRun, observation: Observation) -> frozenset[str]:
    """List the flaws of a played world that went wrong: being drawn is not enough."""
    return frozenset(_list_fired(run, observation))


def _list_fired(run: WorldRun, observation: Observation) -> Iterator[str]:
    world = run.names.world
    if run.operation_fault is not None and run.operation_fault.hits:
        yield run.operation_fault.flaw.name
    module_fault = world.group(Group.MODULE_FAULTS)
    if module_fault is not None and run.module_fault is not None and run.module_fault.hits:
        yield module_fault.name
    yield from (name for name in world.flaw_names if name in _CHECKS and _CHECKS[name](run, observation))


def _build_missing_check(number: int) -> Check:
    """Whether a swap of this UPRN was once not done because a module missed it."""

    def check(run: WorldRun, observation: Observation) -> bool:
        uprn = run.names.uprn(number)
        swaps = [each for each in observation.reports if each.is_swap and uprn in each.uprns]
        return any("missing" in run.log.kinds[each.number] for each in swaps)

    return check


def _is_chained(run: WorldRun, observation: Observation) -> bool:
    """Whether one swap queued behind another, or one cycle had two of an address."""
    swaps = [each for each in observation.reports if each.is_swap]
    together = any(
        set(one.uprns) & set(other.uprns) and one.cycle_id == other.cycle_id
        for place, one in enumerate(swaps)
        for other in swaps[place + 1 :]
    )
    return together or any("behind" in run.log.kinds[each.number] for each in swaps)


def _is_between(_: WorldRun, observation: Observation) -> bool:
    """Whether a cycle dropped a message that came before a swap for one that came after it."""
    reports = observation.reports
    return any(
        each.superseded_by is not None
        and any(
            swap.is_swap and each.id < swap.id < each.superseded_by and each.uprns[0] in swap.uprns for swap in reports
        )
        for each in reports
    )


def _is_deleted_first(_: WorldRun, observation: Observation) -> bool:
    firsts: dict[int, Topic] = {}
    for each in (each for each in observation.reports if not each.is_swap):
        firsts.setdefault(each.uprns[0], each.topic)
    return Topic.DELETE in firsts.values()


def _build_repetition_check(is_accepted: bool) -> Check:
    """Whether a publisher repeated an event, and whether that got a row."""

    def check(run: WorldRun, observation: Observation) -> bool:
        logged = {each.number for each in observation.reports}
        repeated = [number for number in run.delivery.taken if number.endswith("-again")]
        return any((number in logged) == is_accepted for number in repeated)

    return check


def _is_old(run: WorldRun, observation: Observation) -> bool:
    """Whether a snapshot repeated an address that something younger had changed."""
    repeated = {each.number.removesuffix("-again"): each for each in run.names.list_snapshot()}
    olds = [
        each for each in observation.reports if each.number in repeated and f"{each.number}-again" in run.delivery.taken
    ]
    return any(other.id > each.id and each.uprns[0] in other.uprns for each in olds for other in observation.reports)


def _was_taken_again(run: WorldRun, _: Observation) -> bool:
    return any(run.delivery.taken[number] > 1 for number in run.again)


def _is_reversed(_: WorldRun, observation: Observation) -> bool:
    numbers = [
        int(each.number.partition("-")[2]) for each in observation.reports if each.number.partition("-")[2].isdigit()
    ]
    return any(one > other for one, other in pairwise(numbers))


def _is_dropped(run: WorldRun, _: Observation) -> bool:
    return any(each.is_dropped for part in run.names.world.rounds for each in part.messages)


def _build_poison_check(name: str) -> Check:
    """Whether a poison was put into quarantine, or refused by the API."""

    def check(run: WorldRun, observation: Observation) -> bool:
        numbers = {each.number for part in run.names.rounds for each in part if each.poison == name}
        kept: Sequence[str] = tuple(run.delivery.refused) if name in REFUSED else observation.refused
        is_often = name != "dead_lettered" or any(run.delivery.taken[each] >= DEAD_LETTERED for each in numbers)
        return is_often and bool(numbers & set(kept))

    return check


def _is_delivered_twice(reports: Sequence[MessageReport], run: WorldRun) -> bool:
    return any(run.delivery.taken[each.number] > 1 for each in reports)


_CHECKS: Mapping[str, Check] = {
    "module_forgets": lambda run, observation: bool(observation.found),
    "swap_chain": _is_chained,
    "hopeless_swap": _build_missing_check(NEVER),
    "swap_between_writes": _is_between,
    "side_comes_later": _build_missing_check(LATER),
    "side_missing_in_one": lambda run, observation: bool(run.lost) and _build_missing_check(LATER)(run, observation),
    "event_repeated": _build_repetition_check(is_accepted=False),
    "event_repeated_unmarked": _build_repetition_check(is_accepted=True),
    "numbers_reversed": _is_reversed,
    "delete_first": _is_deleted_first,
    "snapshot_after_changes": _is_old,
    "never_delivered": _is_dropped,
    "delivered_twice": lambda run, observation: _is_delivered_twice(observation.reports, run),
    "answer_unread": lambda run, observation: bool(run.delivery.unread),
    "acks_lost": _was_taken_again,
    "again_from_history": lambda run, observation: _was_taken_again(run, observation) and bool(run.archived),
    "replayed": _was_taken_again,
    "foreign_authorization": lambda run, observation: run.delivery.foreign > 0,
    **{name: _build_poison_check(name) for name in POISONS},
}
