"""What may come out of a world, from what it is and before it is played."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.worlds.flaws import Flaw
from tests.worlds.orders.flaws import Group
from tests.worlds.orders.world import ROWS_MAX as BOUND
from tests.worlds.orders.world import World
from tests.worlds.verdict import Expectation

FAILED, REFUSED, BUSY = "platform_failed", "platform_refused", "platform_busy"
ROWS_MAX, TIMEOUT, CREDENTIALS = "platform_rows_max", "slice_timeout", "platform_credentials"
WAITS, CLOCK, ZONE = "waits", "clock", "platform_zone"
NO_CAUSE: frozenset[str] = frozenset()

COSTS_AN_ATTEMPT = frozenset(
    {
        *("leaves", "late_while_read", "cached", "token_repeats", "token_ends", "no_id", "error_in_200", "cut_json"),
        *("nothing", "detail_gone", "detail_other", "detail_older", "lines_repeat", "total_lags"),
    }
)
"""Flaws that pass, but after which a slice without retries has failed."""

Meets = Callable[[World, Flaw], bool]


def _always(_: World, __: Flaw) -> bool:
    return True


def _tells_total(world: World, _: Flaw) -> bool:
    return world.tells_total


def _is_numbered_by_total(world: World, _: Flaw) -> bool:
    return world.is_so("paging", "number") and world.tells_total and world.is_so("more", "no")


def _has_clock_of_date(world: World, _: Flaw) -> bool:
    return world.is_so("clock", "date")


def _misleads_by_total(world: World, flaw: Flaw) -> bool:
    return world.tells_total and (flaw.dial % 2 == 1 or world.is_so("paging", "number"))


def _may_hold_one_full_page(world: World, _: Flaw) -> bool:
    """Whether a window of one full page may look like a platform that ignores the page, and nothing shows which."""
    is_sorted = world.is_so("sort", "newest_first", "oldest_first") and world.is_so("field", "modified")
    is_told = is_sorted and not world.has("undated", "future", "list_older", "filter_ignored")
    return world.is_so("paging", "number") and not world.tells_total and world.is_so("more", "no") and not is_told


# Codes that slices may fail with for a flaw that stays, and when.
CAUSES: Mapping[str, tuple[set[str], Meets]] = {
    "crowd": ({ROWS_MAX}, _always),
    "page_cap": ({FAILED}, _is_numbered_by_total),
    "short_pages": ({FAILED}, _misleads_by_total),
    "page_ignored": ({FAILED}, _always),
    "clamped": ({FAILED}, _may_hold_one_full_page),
    "token_repeats": ({FAILED}, _always),
    "token_ends": ({REFUSED, FAILED}, _always),
    "next_for_ever": ({FAILED}, _always),
    "rows_stop": ({FAILED, ROWS_MAX}, _always),
    "says_it_ends": ({FAILED}, lambda world, _: world.tells_total and not world.is_so("paging", "number")),
    "unstable_ties": ({FAILED}, _always),
    "total_too_large": ({FAILED}, _always),
    "filter_zone": ({ZONE, FAILED}, _always),
    "no_id": ({FAILED}, _always),
    "server_error": ({BUSY}, _always),
    "error_in_200": ({BUSY, REFUSED}, _always),
    "quota": ({WAITS}, _always),
    "limit_as_403": ({REFUSED}, _always),
    "login_page": ({FAILED}, _always),
    "login_redirect": ({REFUSED}, _always),
    "cut_body": ({BUSY}, _always),
    "cut_json": ({FAILED}, _always),
    "nothing": ({FAILED}, _always),
    "version_ended": ({REFUSED}, _always),
    "token_expires": ({CREDENTIALS}, _always),
    "token_rotates": ({CREDENTIALS}, _always),
    "clock_down": ({CLOCK}, _always),
    "clock_strange": ({CLOCK}, _always),
    "date_missing": ({CLOCK}, _has_clock_of_date),
    "detail_gone": ({REFUSED}, _always),
    "detail_other": ({FAILED}, _always),
    "detail_older": ({FAILED}, _always),
    "lines_repeat": ({FAILED}, _always),
}
HEALED = frozenset(
    {
        *(Group.ANSWER, Group.ACCOUNT, Group.CLOCK, Group.DETAIL),
        *("no_id", "token_ends", "token_repeats"),
    }
)
"""What is over once a platform is healed."""


def expect(world: World, *, is_mended: bool = False) -> Expectation:
    """Say which causes a hole may have, and whether a difference can be seen at all.

    Args:
        world: The world.
        is_mended: Whether what lasts is over, and what had failed was read again.
    """
    causes = {cause for flaw in world.flaws for cause in _list_causes(world, flaw, is_mended=is_mended)}
    if causes and world.has("token_expires", "token_rotates"):
        # That they are good again is seen when a slice is complete.
        causes.add(CREDENTIALS)
    return Expectation(frozenset(causes), is_visible=_is_visible(world))


def _list_causes(world: World, flaw: Flaw, *, is_mended: bool) -> frozenset[str]:
    if flaw.passes:
        if not world.is_so("retries", "0") or is_mended:
            return NO_CAUSE
        if flaw.name == "slow":
            return frozenset({TIMEOUT})
        return frozenset({FAILED, REFUSED, ZONE}) if flaw.name in COSTS_AN_ATTEMPT else NO_CAUSE
    group = world.group_of(flaw)
    if is_mended and (flaw.name in HEALED or group in HEALED):
        return NO_CAUSE
    causes, meets = CAUSES.get(flaw.name, (NO_CAUSE, _always))
    return frozenset(causes) if meets(world, flaw) else NO_CAUSE


def _is_visible(world: World) -> bool:
    moves = world.has("leaves", "late_while_read")
    if world.has("too_late", "late_while_read") and world.is_so("sweep", "no"):
        return False
    if world.has("cursor_is_offset") and moves:
        return False
    if world.has("filter_zone"):
        # Windows that come empty before the first order was listed show nothing.
        return False
    if world.has("undated") and world.has("detail_older") and world.is_so("version", "none"):
        # Neither the list nor the single answer shows which of both is newer.
        return False
    if world.has("unstable_ties") and not world.tells_total:
        return False
    led, silent = not world.is_so("paging", "number"), not world.tells_total
    if world.has("rows_stop") and world.has("total_too_small"):
        # It may count just as many as it lists.
        return False
    if world.has("rows_stop") and (silent or world.has("total_of_page", "total_capped")) and not _shows_bound(world):
        return False
    if world.has("says_it_ends") and led and world.has("page_cap", "short_pages"):
        # Behind a page that is not full, nothing shows that there are more, where the total does not.
        return not (silent or world.has("total_of_page"))
    # A page without a row looks like the end, and so does one that is the one before once more.
    shows_no_end = silent and not led and world.is_so("more", "no")
    return not (shows_no_end and world.has("short_pages", "cached"))


def _shows_bound(world: World) -> bool:
    """Whether rows that a platform keeps back lie behind the last one that it lists, and that ends a full page."""
    is_sorted = world.is_so("field", "modified") and world.is_so("sort", "newest_first", "oldest_first")
    # Times that are not there, or older than the order, put the list out of sequence; without a filter no part of a
    # window can be asked for.
    is_plain = not world.has("undated", "future", "list_older", "filter_ignored")
    return is_sorted and is_plain and BOUND % world.page_size == 0
