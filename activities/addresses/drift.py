"""Compare the addresses of the four modules UPRN by UPRN, and write the differences into a workbook.

Only live addresses are compared: their ids and records. Logically deleted ones depend on the orders of each module.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec
from temporalio import activity

from clients.http import RequestSize
from clients.modules import ModuleFailure
from domain.addresses import names
from domain.addresses.activity_models import ComparisonIdInput, ModuleComparisonCounts
from domain.addresses.names import WORKBOOK_CONTENT_TYPE
from domain.addresses.operations import AddressEntry, AddressPage, Module
from infra import secrets
from infra.database import Database
from infra.heartbeats import send_heartbeats_during_block
from infra.objects import ObjectStore
from stores.addresses import search
from stores.addresses.search import LastWriteAndUnfinishedIds

EXACT_INTEGER_MAX: Final = 2**53


class DifferenceKind(StrEnum):
    PRESENCE = "presence"
    """Only some modules have an address of the UPRN."""
    ADDRESS_ID = "address_id"
    RECORD = "record"


class AddressIdAndRecordDigest(NamedTuple):
    """The id and the record's digest of a UPRN's address in one module."""

    address_id: int
    digest: str


Fingerprints = Mapping[Module, AddressIdAndRecordDigest | None]


class AddressDifference(NamedTuple):
    """A UPRN whose addresses differ between modules."""

    uprn: int
    kinds: tuple[DifferenceKind, ...]
    sides: Fingerprints
    place: int = 0
    """The number of UPRNs up to this one in all modules together, when they were scanned."""


def find_difference(uprn: int, fingerprints: Fingerprints) -> AddressDifference | None:
    """Return how the modules differ, or None if they agree."""
    live = [side for side in fingerprints.values() if side]
    kinds = [
        kind
        for kind, differs in (
            (DifferenceKind.PRESENCE, 0 < len(live) < len(fingerprints)),
            (DifferenceKind.ADDRESS_ID, len({side.address_id for side in live}) > 1),
            (DifferenceKind.RECORD, len({side.digest for side in live}) > 1),
        )
        if differs
    ]
    return AddressDifference(uprn, tuple(kinds), fingerprints) if kinds else None


def build_fingerprint(entry: AddressEntry) -> AddressIdAndRecordDigest:
    return AddressIdAndRecordDigest(
        entry.address_id, entry.digest.lower() if entry.digest else digest_record(entry.record or {})
    )


def digest_record(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record in canonical JSON: sorted keys, no spaces, whole numbers without a fraction."""
    text = json.dumps(_turn_whole_floats_into_ints(record), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _turn_whole_floats_into_ints(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < EXACT_INTEGER_MAX:
            return int(value)
        case dict():
            return {name: _turn_whole_floats_into_ints(each) for name, each in value.items()}
        case list():
            return [_turn_whole_floats_into_ints(each) for each in value]
        case _:
            return value


SCAN_PAGE: Final = 1_000


class AddressPageReader(Protocol):
    """A reader of the addresses of modules."""

    async def list_addresses(self, module: Module, after: int, limit: int, /) -> AddressPage:
        """Return a page of addresses, in order of their UPRNs."""
        ...


async def iterate_fingerprints_of_all_uprns(
    modules: AddressPageReader,
) -> AsyncGenerator[tuple[int, Fingerprints], None]:
    """Yield every UPRN that any module has, with what each has, in ascending order.

    Raises:
        ModuleFailure: A module gave no page, or one out of order.
    """
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(_ModuleAddressReader(modules, module)) for module in Module]
        heads = {reader: await reader.read_next() for reader in readers}
        while uprn := min((head[0] for head in heads.values() if head), default=None):
            sides: dict[Module, AddressIdAndRecordDigest | None] = {}
            for reader, head in heads.items():
                is_here = head is not None and head[0] == uprn
                sides[reader.module] = head[1] if head and is_here else None
                if is_here:
                    heads[reader] = await reader.read_next()
            yield uprn, sides


async def look_up_fingerprints(
    modules: AddressPageReader, uprns: Sequence[int], page_size: int
) -> dict[int, dict[Module, AddressIdAndRecordDigest | None]]:
    """Return what ascending UPRNs have in each module now; the pages that are read hold those between them, too."""
    found = await asyncio.gather(*(_look_up_in_module(modules, module, uprns, page_size) for module in Module))
    return {uprn: {module: each.get(uprn) for module, each in zip(Module, found, strict=True)} for uprn in uprns}


async def _look_up_in_module(
    modules: AddressPageReader, module: Module, uprns: Sequence[int], page_size: int
) -> dict[int, AddressIdAndRecordDigest]:
    found, after, size = dict[int, AddressIdAndRecordDigest](), uprns[0] - 1, RequestSize(page_size)
    has_more = True
    while has_more and after < uprns[-1]:
        page, has_more = await _request_fingerprints(modules, module, after, size)
        found |= page
        after = max(page, default=after)
    return found


async def _request_fingerprints(
    modules: AddressPageReader, module: Module, after_uprn: int, size: RequestSize
) -> tuple[dict[int, AddressIdAndRecordDigest], bool]:
    """Return a page by UPRN, in their order, and whether there may be more; while records are large, a shorter one.

    Records are forgotten here: a page of them may be large.
    """
    while True:
        limit = size.items
        try:
            entries = (await modules.list_addresses(module, after_uprn, limit)).addresses
        except ModuleFailure as failure:
            if failure.is_too_large and size.shrink_if_possible(limit):
                continue
            raise
        _refuse_unordered_page(module, after_uprn, entries)
        size.grow()
        return {entry.uprn: build_fingerprint(entry) for entry in entries}, len(entries) >= limit


def _refuse_unordered_page(module: Module, after: int, page: Sequence[AddressEntry]) -> None:
    """Raise if the UPRNs of a page do not ascend from the one that it follows."""
    if any(later <= earlier for earlier, later in pairwise([after, *(entry.uprn for entry in page)])):
        raise ModuleFailure(
            f"Module {module} returned addresses after {after} that are not in ascending order of their UPRNs. Fix its "
            "handler.",
            is_transient=False,
        )


class _ModuleAddressReader:
    """Reads one module's addresses; while a page is processed, the next is being fetched."""

    def __init__(self, modules: AddressPageReader, module: Module) -> None:
        self.module = module
        self._modules = modules
        self._size = RequestSize(SCAN_PAGE)
        self._page: Iterator[tuple[int, AddressIdAndRecordDigest]] = iter(())
        self._next_page: asyncio.Task[tuple[dict[int, AddressIdAndRecordDigest], bool]] | None = None

    async def __aenter__(self) -> Self:
        self._next_page = self._begin_request(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._next_page:
            self._next_page.cancel()
            with suppress(asyncio.CancelledError, ModuleFailure):
                await self._next_page

    async def read_next(self) -> tuple[int, AddressIdAndRecordDigest] | None:
        """Return the next UPRN and what it has, or None after the last."""
        while (found := next(self._page, None)) is None and self._next_page is not None:
            page, has_more = await self._next_page
            self._next_page = self._begin_request(max(page)) if page and has_more else None
            self._page = iter(page.items())
        return found

    def _begin_request(self, after: int) -> asyncio.Task[tuple[dict[int, AddressIdAndRecordDigest], bool]]:
        return asyncio.create_task(_request_fingerprints(self._modules, self.module, after, self._size))


DIFFERENCES_MAX: Final = 50_000
"""Differences that are listed in the workbook; more are only counted."""
GAP_MAX: Final = 50
"""Differences with at most so many UPRNs between them are compared again together, by one page of each module."""
GROUPS_AT_ONCE: Final = 20
DIGEST_CHARACTERS: Final = 12


@dataclass(slots=True)
class DriftCountsAndListedDifferences:
    """Counts and differences of a scan."""

    compared: int = 0
    live: Counter[Module] = field(default_factory=Counter)
    kinds: Counter[DifferenceKind] = field(default_factory=Counter)
    different: int = 0
    shown: list[AddressDifference] = field(default_factory=list)

    def compare_and_count_uprn(self, uprn: int, sides: Fingerprints) -> None:
        self.compared += 1
        self.live.update(module for module, side in sides.items() if side)
        if difference := find_difference(uprn, sides):
            self.count_difference_and_list_up_to_max(difference._replace(place=self.compared))

    def count_difference_and_list_up_to_max(self, difference: AddressDifference) -> None:
        self.different += 1
        self.kinds.update(difference.kinds)
        if len(self.shown) < DIFFERENCES_MAX:
            self.shown.append(difference)

    def subtract_difference_from_counts(self, difference: AddressDifference) -> None:
        """Remove a difference that a change in progress had caused."""
        self.different -= 1
        self.kinds.subtract(difference.kinds)


def group_close_differences(differences: Iterable[AddressDifference]) -> Iterator[list[AddressDifference]]:
    """Yield differences in groups of which a page of each module holds all, and not many others."""
    group: list[AddressDifference] = []
    for difference in differences:
        is_far = group and difference.place - group[-1].place > GAP_MAX
        if is_far or (group and difference.place - group[0].place >= SCAN_PAGE):
            yield group
            group = []
        group.append(difference)
    if group:
        yield group


class ComparisonActivities:
    """Compares the modules."""

    def __init__(self, database: Database, objects: ObjectStore, modules: AddressPageReader) -> None:
        self._database = database
        self._objects = objects
        self._modules = modules

    @activity.defn(name="address_compare")
    async def compare_modules_and_write_workbook(self, params: ComparisonIdInput) -> ModuleComparisonCounts:
        """Compare all modules, check differences a second time, and write the workbook and its manifest."""
        findings = DriftCountsAndListedDifferences()
        async with send_heartbeats_during_block(lambda: [findings.compared, findings.different]):
            async with aclosing(iterate_fingerprints_of_all_uprns(self._modules)) as scanned:
                async for uprn, sides in scanned:
                    findings.compare_and_count_uprn(uprn, sides)
            await self._compare_differences_again(findings)
            known = await search.find_latest_message_ids_of_uprns(
                self._database, [difference.uprn for difference in findings.shown]
            )
            return await self._store_workbook_and_manifest(params, findings, known)

    async def _compare_differences_again(self, findings: DriftCountsAndListedDifferences) -> None:
        """Compare differences again: the modules were read while cycles ran."""
        seen, findings.shown = findings.shown, []
        all_groups = list(group_close_differences(seen))
        for start in range(0, len(all_groups), GROUPS_AT_ONCE):
            groups = all_groups[start : start + GROUPS_AT_ONCE]
            for now in await asyncio.gather(*(self._look_up_current_fingerprints_of_group(group) for group in groups)):
                for uprn, sides in now.items():
                    if still := find_difference(uprn, sides):
                        findings.count_difference_and_list_up_to_max(still)
            for difference in chain.from_iterable(groups):
                findings.subtract_difference_from_counts(difference)

    async def _look_up_current_fingerprints_of_group(
        self, group: Sequence[AddressDifference]
    ) -> Mapping[int, Fingerprints]:
        page_size = group[-1].place - group[0].place + 1
        return await look_up_fingerprints(self._modules, [each.uprn for each in group], page_size)

    async def _store_workbook_and_manifest(
        self,
        params: ComparisonIdInput,
        findings: DriftCountsAndListedDifferences,
        known: Sequence[LastWriteAndUnfinishedIds],
    ) -> ModuleComparisonCounts:
        made_at = await self._database.now()
        # Of its own: an attempt that the engine believes lost may go on, and would replace what a manifest describes.
        key = names.build_comparison_workbook_key(params.comparison_id, secrets.create_random_token())
        report = ModuleComparisonCounts(
            comparison_id=params.comparison_id,
            made_at=made_at,
            compared=findings.compared,
            uprns_by_module={module: findings.live[module] for module in Module},
            different=findings.different,
            **{f"{kind}_differs": findings.kinds[kind] for kind in DifferenceKind},
            in_workbook=len(findings.shown),
            with_unfinished_message=sum(each.open is not None for each in known),
            key=key,
        )
        book = await asyncio.to_thread(render_comparison_workbook, report, findings.shown, known)
        await self._objects.put(key, book, content_type=WORKBOOK_CONTENT_TYPE)
        # The manifest comes last: a reader that finds it finds the workbook, too.
        await self._objects.put(
            names.build_comparison_manifest_key(params.comparison_id), report.model_dump_json().encode()
        )
        return report


def render_comparison_workbook(
    report: ModuleComparisonCounts,
    shown: Sequence[AddressDifference],
    known: Sequence[LastWriteAndUnfinishedIds],
) -> bytes:
    """Return the figures, and the addresses that differ with what each module has, as a workbook."""
    # Workflows import activities for their signatures, and must not pay for pandas and Arrow.
    from excel.arrow import pa  # noqa: PLC0415
    from excel.workbook import render_tables  # noqa: PLC0415

    # isort: split
    import pandas as pd  # noqa: PLC0415 - after PyArrow has looked for it

    figures = report.model_dump(mode="json", exclude={"key", "uprns_by_module"})
    figures |= {f"uprns in {module}": count for module, count in report.uprns_by_module.items()}
    addresses = pd.DataFrame(
        [(each.uprn, ", ".join(each.kinds)) for each in shown], columns=["uprn", "differs in"], dtype="object"
    )
    messages = pd.DataFrame([(each.last, each.open) for each in known], columns=_MESSAGES, dtype="object")
    sides = pd.DataFrame(
        [
            (difference.uprn, f"{module} {what}", value)
            for difference in shown
            for module, side in difference.sides.items()
            for what, value in (
                ("address_id", side.address_id if side else None),
                ("record", side.digest[:DIGEST_CHARACTERS] if side else None),
            )
        ],
        columns=["uprn", "column", "value"],
        dtype="object",
    )
    by_module = sides.pivot(index="uprn", columns="column", values="value").reindex(columns=_BY_MODULE)
    rows = addresses.join(messages).merge(by_module, left_on="uprn", right_index=True, how="left")
    # As text, since Excel keeps only 15 digits of a number.
    texts = rows[["uprn", "differs in", *_BY_MODULE, *_MESSAGES]].astype("string")
    return render_tables(
        {
            "comparison": pa.table(
                {"figure": list(figures), "value": [msgspec.json.encode(value) for value in figures.values()]}
            ),
            "addresses": pa.table(texts.astype("object").where(texts.notna(), None).to_dict("list")),
        }
    )


_BY_MODULE: Final = [f"{module} {what}" for module in Module for what in ("address_id", "record")]
_MESSAGES: Final = ["last message", "open message"]
