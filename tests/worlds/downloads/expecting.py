"""What may come out of a world, from what it is and before it is played."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from tests.worlds.downloads.flaws import KINDS
from tests.worlds.downloads.paging import find_depth
from tests.worlds.downloads.world import SEARCH_DEPTH, DownloadWorld
from tests.worlds.flaws import Flaw, See
from tests.worlds.verdict import Expectation

REPEATS = "source_pages_repeat"
WRONG_SIZE = "source_page_size"
BAD_TOTAL = "source_bad_total"
STATUS = "source_status"
ENDLESS = "source_endless"
CUT_OFF = "source_cut_off"
NOT_JSON = "source_not_json"
NEW_COLUMN = "source_new_column"
CHANGED = "source_total_changed"
EMPTY_PAGE = "source_empty_page"

SAME_ROWS = "have the same rows"
SMALL = 20
"""Pages with fewer rows may be equal by chance."""
NO_CAUSE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Facts:
    """What decides whether a flaw that stays can be met with the truth."""

    world: DownloadWorld
    flaw: Flaw

    @property
    def has_total(self) -> bool:
        """Whether the source reports a total."""
        return self.world.tells_total

    @property
    def may_be_short(self) -> bool:
        """Whether pages may hold fewer rows than they should."""
        return bool(self.world.options["force_continue"]) or self.world.has("goes_on_for_ever")

    @property
    def smallest_page(self) -> int:
        """How many rows are asked for at a time, where large pages take too long."""
        is_slow = self.world.has("large_pages_time_out", "hangs_once")
        return self.world.page_size // 10 if is_slow else self.world.page_size

    @property
    def is_deep(self) -> bool:
        """Whether rows lie deeper than the source gives."""
        return find_depth(self.world, self.flaw) < self.world.rows


Meets = Callable[[Facts], bool]


def always(_: Facts) -> bool:
    """A flaw that no source and no request can make up for."""
    return True


def _has_rows(facts: Facts) -> bool:
    return facts.world.rows > 0


def _has_rows_and_no_total(facts: Facts) -> bool:
    return facts.world.rows > 0 and not facts.has_total


def _has_total(facts: Facts) -> bool:
    return facts.has_total


def _has_closed_columns(facts: Facts) -> bool:
    """A template says itself which keys it shows, and rows that come along are seen all at once."""
    return facts.world.options["columns"] == "closed" and not facts.world.is_drawn and not facts.world.is_inline


# Codes that an export may fail with for a flaw that stays, and when it may.
CAUSES: Mapping[str, tuple[set[str], Meets]] = {
    "filtered": ({WRONG_SIZE}, lambda facts: facts.has_total and not facts.may_be_short),
    "counts_from_1": (
        {REPEATS, WRONG_SIZE, BAD_TOTAL},
        # A request that says it counts from 1 gets all of it.
        lambda facts: facts.world.rows > 0 and facts.world.options["first_page"] == 0,
    ),
    "clamped": ({REPEATS, ENDLESS}, _has_rows_and_no_total),
    "page_ignored": (
        {REPEATS, WRONG_SIZE, BAD_TOTAL, ENDLESS},
        lambda facts: facts.world.rows > (facts.smallest_page if facts.has_total else 0),
    ),
    "all_at_once": ({REPEATS, WRONG_SIZE, ENDLESS}, _has_rows_and_no_total),
    "error_past_the_end": (
        {STATUS},
        lambda facts: not facts.has_total and (facts.world.rows > 0 or facts.world.has("goes_on_for_ever")),
    ),
    "one_row_more": ({WRONG_SIZE}, lambda facts: facts.world.rows > facts.smallest_page),
    "deep_error": ({STATUS}, lambda facts: not facts.has_total or facts.is_deep),
    "deep_nothing": (
        {WRONG_SIZE},
        lambda facts: facts.has_total and not facts.may_be_short and facts.is_deep,
    ),
    "rows_enter": ({BAD_TOTAL, WRONG_SIZE}, _has_total),
    "rows_leave": ({BAD_TOTAL, WRONG_SIZE}, _has_total),
    "total_of_page": ({BAD_TOTAL, WRONG_SIZE}, _has_total),
    "total_is_page_size": ({BAD_TOTAL, WRONG_SIZE}, _has_total),
    "total_in_pages": ({BAD_TOTAL, WRONG_SIZE}, _has_total),
    "total_capped": (
        {BAD_TOTAL, WRONG_SIZE},
        lambda facts: facts.has_total and facts.world.page_size * (1 + facts.flaw.dial % 3) < facts.world.rows,
    ),
    "total_moves": ({CHANGED, BAD_TOTAL, WRONG_SIZE}, _has_total),
    "goes_on_for_ever": ({ENDLESS}, lambda facts: not facts.has_total),
    "late_column": ({NEW_COLUMN}, _has_closed_columns),
    "missing_keys": ({NEW_COLUMN}, _has_closed_columns),
    "not_a_number": ({NOT_JSON}, _has_rows),
    "infinity": ({NOT_JSON}, _has_rows),
    "other_encoding": ({NOT_JSON}, _has_rows),
    "server_error": ({STATUS}, always),
    "error_in_body": ({"source_refused"}, always),
    # If repeats are allowed, rows behind the last page that came from the cache become a warning.
    "cached": ({REPEATS, WRONG_SIZE, BAD_TOTAL, EMPTY_PAGE}, always),
    "limit_as_403": ({STATUS}, always),
    "login_page": ({NOT_JSON}, always),
    "login_redirect": ({STATUS}, always),
    "redirected": ({STATUS}, always),
    "redirected_relatively": ({STATUS}, always),
    "redirected_in_circles": ({STATUS}, always),
    "credential_dies": ({STATUS}, always),
    "cut_body": ({CUT_OFF}, always),
    "cut_chunks": ({CUT_OFF}, always),
    "nothing": ({"source_no_data"}, always),
    "trickle": ({"source_timeout"}, always),
    "stall": ({"source_timeout"}, always),
    "cut_json": ({CUT_OFF}, always),
    "gzip_not": ({CUT_OFF}, always),
    "gzip_unsaid": ({NOT_JSON}, always),
    "gzip_twice": ({NOT_JSON}, always),
    "gzip_cut": ({CUT_OFF}, always),
}


def build_expectation(world: DownloadWorld) -> Expectation:
    """Codes that it may fail with, and whether a difference can be seen at all."""
    causes = {cause for flaw in world.flaws for cause in _list_causes(world, flaw)}
    is_wrong = world.options["first_page"] == 1 and world.counts_from == 0 and not world.is_inline
    if is_wrong and not world.has("counts_from_1", "page_ignored", "all_at_once"):
        # The request says that the source counts from 1, and it does not.
        causes |= {"source_first_page", WRONG_SIZE, BAD_TOTAL} if world.rows else set()
        causes |= {STATUS} if world.has("error_past_the_end", "deep_error") else set()
    if world.is_refused:
        causes = {"refused: invalid_request"}
    return Expectation(
        frozenset(causes),
        frozenset(_list_possible_warnings(world, causes)),
        _is_visible(world),
        dict(_list_required_warnings(world)),
    )


def _list_required_warnings(world: DownloadWorld) -> Iterator[tuple[str, str]]:
    """Flaws that need a warning, though all rows are there."""
    yield "keys_twice", "twice"
    if world.options["type"] == "excel":
        yield "long_texts", "Texts that were cut"


def _list_possible_warnings(world: DownloadWorld, causes: Collection[str]) -> Iterator[str]:
    """Words of warnings that allow a difference."""
    smallest = world.rows % world.page_size or world.page_size
    is_repeated = REPEATS in causes or world.has("cached")
    if is_repeated and (smallest < SMALL or world.has("filtered", "large_pages_time_out", "hangs_once")):
        yield SAME_ROWS
    if world.options["allow_repeats"] and world.has("counts_from_1", "page_ignored", "cached", "clamped"):
        # If pages may repeat, repeated rows are delivered, with a warning.
        yield SAME_ROWS
    if BAD_TOTAL in causes:
        yield "whether more follow could not be seen"
    if world.has("ties", "rows_enter"):
        yield "came on more than one page"
    if world.has("deep_nothing"):
        yield "have no rows, although"
        yield "a round number"


def _list_causes(world: DownloadWorld, flaw: Flaw) -> frozenset[str]:
    causes, meets = CAUSES.get(flaw.name, (NO_CAUSE, always))
    return frozenset(causes) if not flaw.passes and meets(Facts(world, flaw)) else NO_CAUSE


def _is_visible(world: DownloadWorld) -> bool:
    if any(KINDS[flaw.name].see is See.NOBODY for flaw in world.flaws):
        return False
    # Without a total, or with a capped one, an empty page in place of rows looks like the end.
    may_end = not world.tells_total or world.has("total_capped")
    return not (may_end and world.rows <= SEARCH_DEPTH and world.has("deep_nothing"))
