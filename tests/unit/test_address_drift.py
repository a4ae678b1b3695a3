"""Drift: in what modules may differ, and that every UPRN of every module is compared once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from activities.addresses import drift
from activities.addresses.drift import (
    AddressIdAndRecordDigest,
    DifferenceKind,
    build_fingerprint,
    digest_record,
    find_difference,
)
from api.addresses import comparisons
from clients.modules import ModuleFailure
from domain.addresses.activity_models import ComparisonIdInput
from domain.addresses.operations import AddressEntry, AddressPage, Module

LIVE = AddressIdAndRecordDigest(1, "a")


@pytest.mark.parametrize(
    ("od", "kinds"),
    [
        (LIVE, None),
        (None, (DifferenceKind.PRESENCE,)),
        (LIVE._replace(address_id=2), (DifferenceKind.ADDRESS_ID,)),
        (LIVE._replace(digest="b"), (DifferenceKind.RECORD,)),
        (LIVE._replace(address_id=2, digest="b"), (DifferenceKind.ADDRESS_ID, DifferenceKind.RECORD)),
    ],
)
def test_a_module_that_has_it_differently_is_found(
    od: AddressIdAndRecordDigest | None, kinds: tuple[DifferenceKind, ...] | None
) -> None:
    """Presence, address id and record of what a UPRN has."""
    found = find_difference(7, {**dict.fromkeys(Module, LIVE), Module.OD: od})

    assert (found.kinds if found else None) == kinds


def test_a_digest_does_not_hang_on_how_a_record_is_written() -> None:
    """The order of fields, spaces, escapes, and fractions of whole numbers."""
    written = ['{"b": 1.0, "a": ["\\u00e9", {"y": null, "x": true}]}', '{"a":["é",{"x":true,"y":null}],"b":1}']

    assert len({digest_record(json.loads(text)) for text in written}) == 1
    assert digest_record({"a": 1}) != digest_record({"a": 1.5}) != digest_record({"a": "1"})
    # As the page for module owners describes it, so that they can compare theirs.
    assert digest_record({"b": 1, "a": "é"}) == "aa58fba8483623bed37c1b02edfccbdd9a53123837c20bfa4cb4049993a2872e"


@pytest.mark.parametrize("told", ["AB12", "ab12"])
def test_a_module_may_tell_a_digest_instead(told: str) -> None:
    """In either case of its letters."""
    assert build_fingerprint(AddressEntry(uprn=2, address_id=1, digest=told)) == AddressIdAndRecordDigest(1, "ab12")


@dataclass
class Books:
    """Modules that keep their addresses in dictionaries; `asked` counts pages."""

    by_module: Mapping[Module, Mapping[int, AddressEntry]]
    asked: int = 0

    async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """A page."""
        self.asked += 1
        uprns = sorted(uprn for uprn in self.by_module[module] if uprn > after)[:limit]
        return AddressPage(addresses=[self.by_module[module][uprn] for uprn in uprns])


def entry(uprn: int, address_id: int) -> AddressEntry:
    """An address."""
    return AddressEntry(uprn=uprn, address_id=address_id, record={"n": address_id})


BOOKS = st.fixed_dictionaries(
    {module: st.dictionaries(st.integers(1, 12), st.integers(1, 3), max_size=12) for module in Module}
)


@given(books=BOOKS, page=st.integers(1, 5))
async def test_all_addresses_are_compared_in_pages_of_any_size(
    books: Mapping[Module, Mapping[int, int]], page: int
) -> None:
    """As dictionaries side by side would be."""
    told = Books({module: {uprn: entry(uprn, id_) for uprn, id_ in book.items()} for module, book in books.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift, "SCAN_PAGE", page)
        scanned = [each async for each in drift.iterate_fingerprints_of_all_uprns(told)]
    uprns = sorted({uprn for book in books.values() for uprn in book})

    assert [uprn for uprn, _ in scanned] == uprns
    for uprn, sides in scanned:
        assert {module: side.address_id for module, side in sides.items() if side} == {
            module: book[uprn] for module, book in books.items() if uprn in book
        }
    for size in range(1, len(scanned) + 1):
        some = dict(scanned[:size:2])
        assert await drift.look_up_fingerprints(told, [*some], page) == some


@pytest.mark.parametrize(
    ("different", "pages"),
    [
        (range(1, 4_001), 4 * (4 + 4)),
        (range(1, 4_001, 10), 4 * (4 + 4)),
        ([1, 4_000], 4 * (4 + 2)),
        (range(1, 4_001, 100), 4 * (4 + 40)),
    ],
    ids=["all", "one in ten", "two", "far apart"],
)
async def test_close_differences_are_compared_again_by_one_page(different: Sequence[int], pages: int) -> None:
    """And those far from each other by one each, not by pages of what agrees."""
    books = {module: {uprn: entry(uprn, uprn) for uprn in range(1, 4_001)} for module in Module}
    books[Module.OD] |= {uprn: entry(uprn, 0) for uprn in different}
    told = Books(books)
    findings = drift.DriftCountsAndListedDifferences()
    async for uprn, sides in drift.iterate_fingerprints_of_all_uprns(told):
        findings.compare_and_count_uprn(uprn, sides)

    found = list(drift.group_close_differences(findings.shown))
    for group in found:
        size = group[-1].place - group[0].place + 1
        now = await drift.look_up_fingerprints(told, [each.uprn for each in group], size)
        assert now == {each.uprn: each.sides for each in group}

    assert [each.uprn for group in found for each in group] == list(different)
    # The last page of a scan is full, so each module is asked once more.
    assert told.asked == pages + len(Module)


async def test_only_a_few_pages_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each module the one that is compared and the next."""
    monkeypatch.setattr(drift, "SCAN_PAGE", 10)
    book = {uprn: entry(uprn, uprn) for uprn in range(1, 1_001)}
    told = Books(dict.fromkeys(Module, book))

    most = 0
    async for uprn, _ in drift.iterate_fingerprints_of_all_uprns(told):
        most = max(most, told.asked - len(Module) * ((uprn - 1) // 10))

    assert most <= 3 * len(Module)


async def test_a_module_that_repeats_itself_is_not_believed() -> None:
    """A page that does not go on after the one before would never end."""

    class Stuck(Books):
        async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
            return await super().list_addresses(module, 0, limit)

    book: dict[int, Any] = {uprn: entry(uprn, uprn) for uprn in range(1, drift.SCAN_PAGE + 1)}
    with pytest.raises(ModuleFailure, match="not in ascending order"):
        async for _ in drift.iterate_fingerprints_of_all_uprns(Stuck(dict.fromkeys(Module, book))):
            pass


@dataclass
class LargeBooks(Books):
    """Modules whose answers may have a few addresses only."""

    most: int = 3

    async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """A page, or the failure of one that is too large."""
        page = await super().list_addresses(module, after, limit)
        if len(page.addresses) > self.most:
            raise ModuleFailure("It answered with more than is read.", is_transient=False, is_too_large=True)
        return page


async def test_large_records_are_compared_in_shorter_pages() -> None:
    """The first size that fits is kept, so that few pages are asked for in vain."""
    books = {module: {uprn: entry(uprn, uprn) for uprn in range(1, 101)} for module in Module}
    told = LargeBooks(books)

    scanned = [uprn async for uprn, _ in drift.iterate_fingerprints_of_all_uprns(told)]
    again = await drift.look_up_fingerprints(told, [1, 50, 100], 100)

    assert scanned == list(range(1, 101))
    assert {uprn: sides[Module.ED] for uprn, sides in again.items()} == {
        n: build_fingerprint(entry(n, n)) for n in (1, 50, 100)
    }
    assert told.asked < 8 * 100


async def test_a_record_that_is_too_large_alone_fails() -> None:
    """With the sentence of the module's client."""
    book = {module: {1: entry(1, 1)} for module in Module}
    with pytest.raises(ModuleFailure, match="more than is read"):
        async for _ in drift.iterate_fingerprints_of_all_uprns(LargeBooks(book, most=0)):
            pass


async def test_a_module_that_answers_more_than_was_asked_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer page is not the last one."""
    monkeypatch.setattr(drift, "SCAN_PAGE", 10)

    class Generous(Books):
        async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
            return await super().list_addresses(module, after, limit + 5)

    books = {module: {uprn: entry(uprn, uprn) for uprn in range(1, 101)} for module in Module}

    assert [uprn async for uprn, _ in drift.iterate_fingerprints_of_all_uprns(Generous(books))] == list(range(1, 101))


async def test_a_workbook_of_another_attempt_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine begins a comparison anew whose worker it does not hear of, and both may end."""
    objects = AsyncMock()
    database = AsyncMock(now=AsyncMock(return_value=datetime(2026, 11, 20, tzinfo=UTC)))
    monkeypatch.setattr(
        "activities.addresses.drift.search.find_latest_message_ids_of_uprns", AsyncMock(return_value=[])
    )
    attempts = drift.ComparisonActivities(database, objects, Books({module: {} for module in Module}))
    first, second = [
        await ActivityEnvironment().run(
            attempts.compare_modules_and_write_workbook, ComparisonIdInput(comparison_id="r")
        )
        for _ in range(2)
    ]

    written = [call.args[0] for call in objects.put.await_args_list]
    assert written == [first.key, "addresses-comparisons/r.json", second.key, "addresses-comparisons/r.json"]
    assert first.key != second.key


async def test_a_manifest_of_another_name_does_not_break_the_list() -> None:
    """Earlier code wrote it into the folder of the comparison."""
    listed = [MagicMock(key=f"addresses-comparisons/{name}") for name in ("20261119T134600Z/manifest.json", "a.json")]
    call = MagicMock()
    call.services.objects.list = AsyncMock(return_value=listed)
    call.services.engine.list_workflows.return_value.__aiter__.return_value = []

    assert (await comparisons.list_comparisons(call)).items == []
