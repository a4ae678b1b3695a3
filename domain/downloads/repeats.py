"""Repetition in a source: pages that have the same rows, rows on two pages, and rows that have a key twice."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, repeat, takewhile
from operator import is_not
from typing import Final

import msgspec

from domain.downloads.envelope import NULL
from domain.downloads.flat import NestedRowsAndKeyCount, compact_json_and_escape_backslashes
from domain.faults import SourceFault

ROWS_MIN: Final = 20
"""Smaller pages may be equal by chance, which is a warning and no fault."""
SMALL_IN_A_ROW_MAX: Final = 2
"""Equal small pages in a row; one more means that the source answers one page for ever."""
SAME_PAGES_MAX: Final = 50
"""Equal pages in a row after which a source is taken for endless, whatever the request allows."""
PAIRS_SHOWN_MAX: Final = 5
NO_ROWS: Final = ""
ROWS_REMEMBERED: Final = 20_000
"""Rows that are checked for repetition: the first of an export, or of each range of a larger one."""
ROW_BYTES: Final = 8
DEPTH_MIN: Final = 10_000
DEPTH_STEP: Final = 1_000
"""Sources that stop at a depth stop at a multiple of this, from `DEPTH_MIN` on."""

PageMarks = Sequence[str]
"""Marks of consecutive pages: the number of rows and a digest, e.g. `500:89ab…`."""
SAMPLE_ROWS: Final = 50
"""Rows by which columns with nested keys are recognised."""
REPEATED_KEYS_MAX: Final = 20
"""Repeated keys that are reported."""
_NESTED = (b"{", b"[")
RawRows = Sequence[Sequence[msgspec.Raw]]


def build_page_mark(rows: int, digest: str) -> str:
    """Return the mark of a page."""
    return f"{rows}:{digest}" if rows else NO_ROWS


def parse_row_count(page_mark: str) -> int:
    """Return the number of rows of a marked page."""
    return int(page_mark.partition(":")[0]) if page_mark else 0


def build_rows_mark(texts: Iterable[bytes | msgspec.Raw]) -> str:
    return b64encode(b"".join(blake2b(text, digest_size=ROW_BYTES).digest() for text in texts)).decode()


def build_repeated_rows_warning_if_any(rows_marks: Iterable[str]) -> list[str]:
    """Return a warning if rows are on more than one page.

    Args:
        rows_marks: The marks of the rows of each page.
    """
    pages = Counter(row for page_mark in rows_marks for row in _decode_row_digests(page_mark))
    doubled = sum(count - 1 for count in pages.values() if count > 1)
    if not doubled:
        return []
    why = "If no two of its rows are equal, its order changes from page to page, and as many rows may be missing"
    return [f"{doubled:,} rows of the source came on more than one page. {why}: let it sort by a unique key."]


def _decode_row_digests(rows_mark: str) -> set[bytes]:
    packed = b64decode(rows_mark)
    return {packed[at : at + ROW_BYTES] for at in range(0, len(packed), ROW_BYTES)}


def list_doubtful_end_warnings(marks: PageMarks, total: int | None, rows: int) -> list[str]:
    """Return a warning if the end may be wrong: many sources answer nothing beyond some depth, and no error.

    Args:
        marks: The marks of all pages, in order.
        total: The total that the source reports.
        rows: Rows that were received.
    """
    if total is None:
        if rows < DEPTH_MIN or rows % DEPTH_STEP:
            return []
        why = "at which some sources stop though they have more: compare it with the source, or let it report `total`"
        return [f"The source reports no total, and ended after {rows:,} rows, a round number {why}."]
    empty = len(list(takewhile(lambda mark: mark == NO_ROWS, reversed(marks))))
    if not empty:
        return []
    why = "they should: if it does not filter after it has paged, rows are missing"
    return [f"The last {empty:,} of {len(marks):,} pages have no rows, although by the total of {total:,} {why}."]


class SeenPageMarks:
    """The pages of a source so far, to detect repeated ones.

    Args:
        first: The number of the first page.
        marks: The marks of pages that are known already.
        is_allowed: Whether pages may repeat.
        is_endless: Whether the source reports no total, so that only an empty page ends it.
    """

    def __init__(self, first: int, marks: PageMarks, *, is_allowed: bool, is_endless: bool) -> None:
        self._first_page = first
        self._marks = list(marks)
        self._is_allowed = is_allowed
        self._is_endless = is_endless
        self._page_numbers = {each: first + at for at, each in reversed(list(enumerate(marks)))}

    def require_no_repetition(self, number: int, page_mark: str) -> None:
        """Check that the next page is not a repetition.

        Raises:
            SourceFault: It is; a second request may have another answer.
        """
        if self._is_endless:
            require_no_endless_page(number, [*self._marks[-SAME_PAGES_MAX:], page_mark])
        before = self._page_numbers.get(page_mark)
        if self._is_allowed or before is None or before == number or not page_mark:
            return
        if parse_row_count(page_mark) >= ROWS_MIN or self._repeats_last_pages(page_mark):
            raise build_repeated_pages_fault(before, number, parse_row_count(page_mark))

    def add(self, number: int, page_mark: str) -> None:
        """Add a page."""
        self._marks.append(page_mark)
        self._page_numbers.setdefault(page_mark, number)

    def _repeats_last_pages(self, page_mark: str) -> bool:
        # Three equal pages of one row may be right if the total says that there are as many.
        most = SMALL_IN_A_ROW_MAX if self._is_endless or parse_row_count(page_mark) > 1 else ROWS_MIN
        return self._marks[-most:] == [page_mark] * most


def require_no_endless_page(number: int, marks: PageMarks) -> None:
    """Check that a source without a total does not answer one page for ever, which no request allows.

    Args:
        number: The number of the last page.
        marks: The marks of the last pages.

    Raises:
        SourceFault: It does.
    """
    if len(marks) > SAME_PAGES_MAX and marks[-1] and len(set(marks[-SAME_PAGES_MAX - 1 :])) == 1:
        raise SourceFault(
            "source_endless",
            f"The source answers the same page again and again: {SAME_PAGES_MAX} times up to page {number}.",
            "Answer an empty page behind the last one.",
        )


def require_distinct_pages_or_build_warning(
    ranges: Iterable[tuple[int, PageMarks]], *, is_allowed: bool = False
) -> list[str]:
    """Compare the pages of all ranges, and return a warning about equal ones if they are allowed.

    Args:
        ranges: The number of the first page of each range, and the marks of its pages.
        is_allowed: Whether pages may repeat; otherwise only small ones may.

    Raises:
        SourceFault: Two large pages are equal, and pages may not repeat.
    """
    places: dict[str, int] = {}
    equal: list[tuple[int, int]] = []
    for first, marks in ranges:
        for number, page_mark in enumerate(marks, start=first):
            if not page_mark:
                continue
            before = places.setdefault(page_mark, number)
            if before == number:
                continue
            if parse_row_count(page_mark) >= ROWS_MIN and not is_allowed:
                raise build_repeated_pages_fault(before, number, parse_row_count(page_mark))
            equal.append((before, number))
    if not equal:
        return []
    pairs = ", ".join(f"{one} and {other}" for one, other in equal[:PAIRS_SHOWN_MAX])
    more = f" and {len(equal) - PAIRS_SHOWN_MAX:,} more" if len(equal) > PAIRS_SHOWN_MAX else ""
    from_one = " If its pages are counted from 1, send `first_page`: 1." if (0, 1) in equal else ""
    return [f"Pages of the source have the same rows, which may be a repetition: pages {pairs}{more}.{from_one}"]


def build_repeated_pages_fault(one: int, other: int, rows: int) -> SourceFault:
    """Build the fault for two pages with the same rows."""
    hint = "Make the source honour `page`, and check whether a cache answers for it; if rows do repeat, send "
    hint += "`allow_repeats`: true."
    if (one, other) == (0, 1):
        hint = "If its pages are counted from 1, send `first_page`: 1. " + hint
    return SourceFault(
        "source_pages_repeat",
        f"Pages {one} and {other} of the source have the same {rows:,} rows.",
        hint,
        doubtful=True,
    )


def find_keys_repeated_in_one_row(uneven: NestedRowsAndKeyCount, rows: RawRows) -> list[str]:
    """Return the keys that a row has twice, for the first such row.

    A row with a repeated key loses a value, as every JSON reader keeps the last one silently. To find one without
    parsing again, the keys are counted in the text and compared with the cells that were read; only if there are more
    keys than cells, the page is parsed row by row.

    Args:
        uneven: The rows as text.
        rows: Their cells, `NULL` itself where a row has no such key.
    """
    if not rows:
        return []
    keys = count_json_keys(uneven.data) if uneven.keys is None else uneven.keys
    more = keys - sum(map(is_not, chain.from_iterable(rows), repeat(NULL)))
    if (
        not more
        or more == _count_keys_within_cells(rows, _find_nested_columns(rows))
        or more == _count_keys_within_cells(rows, range(len(rows[0])))
    ):
        return []
    return _find_repeated_keys_row_by_row(uneven.data)


def count_json_keys(data: bytes) -> int:
    """Count the keys in valid JSON, at any depth."""
    text = compact_json_and_escape_backslashes(data)
    # A quote before a colon ends a key, unless it is escaped and part of a text.
    return text.count(b'":') - text.count(b'\\":')


def add_repeated_keys_with_first_page(before: Mapping[str, int], keys: Iterable[str], page: int) -> dict[str, int]:
    """Add the repeated keys of a page to the first page of each key."""
    merged = dict(before)
    for key in keys:
        if key in merged or len(merged) < REPEATED_KEYS_MAX:
            merged[key] = min(page, merged.get(key, page))
    return merged


def build_warning_for_each_repeated_key(first_page_by_key: Mapping[str, int]) -> list[str]:
    """Return a warning about each repeated key.

    Args:
        first_page_by_key: Its number as the source counts.
    """
    return [
        f"Rows of the source have the key `{key[:200]}` twice, first on page {page}; the file has the last value."
        for key, page in sorted(first_page_by_key.items(), key=lambda item: (item[1], item[0]))
    ]


def _find_nested_columns(rows: RawRows) -> list[int]:
    sample = rows[:SAMPLE_ROWS]
    return [at for at in range(len(rows[0])) if any(bytes(row[at])[:1] in _NESTED for row in sample)]


def _count_keys_within_cells(rows: RawRows, columns: Sequence[int]) -> int:
    """Count the keys within the cells of some columns."""
    return count_json_keys(b"[%b]" % b",".join([row[at] for row in rows for at in columns]))


def _find_repeated_keys_row_by_row(data: bytes) -> list[str]:
    for row in msgspec.json.decode(data, type=list[msgspec.Raw]):
        counted = Counter(_list_all_keys(bytes(row)))
        if repeated := [key for key, times in counted.items() if times > 1]:
            return repeated[:REPEATED_KEYS_MAX]
    return []


def _list_all_keys(row: bytes) -> list[str]:
    """Return all keys of a row as often as they occur, in any spelling."""
    try:
        keys: list[str] = json.loads(row, object_pairs_hook=_get_pair_keys, parse_int=str, parse_float=str)
    except RecursionError:
        return []
    return keys


def _get_pair_keys(pairs: Sequence[tuple[str, object]]) -> list[str]:
    return [key for key, _ in pairs]
