"""Firing: which flaws of a world really went wrong, by what was seen of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from domain.addresses.messages import Topic
from tests.worlds.addresses.flaws import Group
from tests.worlds.addresses.naming import POISONS, REFUSED
from tests.worlds.addresses.seen import Seen, Told
from tests.worlds.addresses.world import DEAD_LETTERED, LATER, NEVER

if TYPE_CHECKING:
    from tests.worlds.addresses.playing import Play

Check: TypeAlias = "Callable[[Play, Seen], bool]"


def list_fired(play: Play, seen: Seen) -> frozenset[str]:
    """List the flaws of a played world that went wrong: being drawn is not enough."""
    return frozenset(_list_fired(play, seen))


def _list_fired(play: Play, seen: Seen) -> Iterator[str]:
    world = play.names.world
    if play.curse is not None and play.curse.hits:
        yield play.curse.flaw.name
    weather = world.group(Group.WEATHER)
    if weather is not None and play.weather is not None and play.weather.hits:
        yield weather.name
    yield from (name for name in world.flaw_names if name in _CHECKS and _CHECKS[name](play, seen))


def _lacked(number: int) -> Check:
    """Whether a swap of this UPRN was once not done for want of it."""

    def check(play: Play, seen: Seen) -> bool:
        uprn = play.names.uprn(number)
        swaps = [each for each in seen.told if each.is_swap and uprn in each.uprns]
        return any("missing" in play.log.kinds[each.number] for each in swaps)

    return check


def _is_chained(play: Play, seen: Seen) -> bool:
    """Whether one swap queued behind another, or one cycle had two of an address."""
    swaps = [each for each in seen.told if each.is_swap]
    together = any(
        set(one.uprns) & set(other.uprns) and one.cycle_id == other.cycle_id
        for place, one in enumerate(swaps)
        for other in swaps[place + 1 :]
    )
    return together or any("behind" in play.log.kinds[each.number] for each in swaps)


def _is_between(_: Play, seen: Seen) -> bool:
    """Whether a cycle dropped a message that came before a swap for one that came after it."""
    return any(
        each.superseded_by is not None
        and any(
            swap.is_swap and each.id < swap.id < each.superseded_by and each.uprns[0] in swap.uprns for swap in told
        )
        for told in (seen.told,)
        for each in told
    )


def _is_deleted_first(_: Play, seen: Seen) -> bool:
    firsts: dict[int, Topic] = {}
    for each in (each for each in seen.told if not each.is_swap):
        firsts.setdefault(each.uprns[0], each.topic)
    return Topic.DELETE in firsts.values()


def _is_repeated(is_accepted: bool) -> Check:
    """Whether a publisher repeated an event, and whether that got a row."""

    def check(play: Play, seen: Seen) -> bool:
        logged = {each.number for each in seen.told}
        repeated = [number for number in play.delivery.taken if number.endswith("-again")]
        return any((number in logged) == is_accepted for number in repeated)

    return check


def _is_old(play: Play, seen: Seen) -> bool:
    """Whether a snapshot repeated an address that something younger had changed."""
    repeated = {each.number.removesuffix("-again"): each for each in play.names.list_snapshot()}
    olds = [each for each in seen.told if each.number in repeated and f"{each.number}-again" in play.delivery.taken]
    return any(other.id > each.id and each.uprns[0] in other.uprns for each in olds for other in seen.told)


def _was_taken_again(play: Play, _: Seen) -> bool:
    return any(play.delivery.taken[number] > 1 for number in play.again)


def _is_reversed(_: Play, seen: Seen) -> bool:
    numbers = [int(each.number.partition("-")[2]) for each in seen.told if each.number.partition("-")[2].isdigit()]
    return any(one > other for one, other in pairwise(numbers))


def _is_dropped(play: Play, _: Seen) -> bool:
    return any(said.is_dropped for part in play.names.world.rounds for said in part.said)


def _is_poisoned(name: str) -> Check:
    """Whether a poison was put into quarantine, or refused at the door."""

    def check(play: Play, seen: Seen) -> bool:
        numbers = {each.number for part in play.names.rounds for each in part if each.poison == name}
        kept: Sequence[str] = tuple(play.delivery.refused) if name in REFUSED else seen.refused
        is_often = name != "dead_lettered" or any(play.delivery.taken[each] >= DEAD_LETTERED for each in numbers)
        return is_often and bool(numbers & set(kept))

    return check


def _twice(told: Sequence[Told], play: Play) -> bool:
    return any(play.delivery.taken[each.number] > 1 for each in told)


_CHECKS: Mapping[str, Check] = {
    "module_forgets": lambda play, seen: bool(seen.found),
    "swap_chain": _is_chained,
    "hopeless_swap": _lacked(NEVER),
    "swap_between_writes": _is_between,
    "side_comes_later": _lacked(LATER),
    "side_missing_in_one": lambda play, seen: bool(play.lost) and _lacked(LATER)(play, seen),
    "event_repeated": _is_repeated(is_accepted=False),
    "event_repeated_unmarked": _is_repeated(is_accepted=True),
    "numbers_reversed": _is_reversed,
    "delete_first": _is_deleted_first,
    "snapshot_after_changes": _is_old,
    "never_delivered": _is_dropped,
    "delivered_twice": lambda play, seen: _twice(seen.told, play),
    "answer_unread": lambda play, seen: bool(play.delivery.unread),
    "acks_lost": _was_taken_again,
    "again_from_history": lambda play, seen: _was_taken_again(play, seen) and bool(play.archived),
    "replayed": _was_taken_again,
    "foreign_authorization": lambda play, seen: play.delivery.foreign > 0,
    **{name: _is_poisoned(name) for name in POISONS},
}
