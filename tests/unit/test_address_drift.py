"""Drift: in what modules may differ, and that every address of every module is compared once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.addresses import scanning
from domain.addresses import drift
from domain.addresses.drift import ABSENT, Kind, Side, State
from domain.addresses.operations import AddressEntry, AddressPage, Module
from infra.modules import ModuleFailure

LIVE = Side(State.LIVE, 1, "a")
LOGICAL = Side(State.LOGICAL, 1, "b")


@pytest.mark.parametrize(
    ("od", "kinds"),
    [
        (LIVE, None),
        (ABSENT, (Kind.PRESENCE,)),
        (LOGICAL, (Kind.PRESENCE,)),
        (LIVE._replace(uprn=2), (Kind.UPRN,)),
        (LIVE._replace(digest="b"), (Kind.RECORD,)),
        (LIVE._replace(uprn=2, digest="b"), (Kind.UPRN, Kind.RECORD)),
    ],
)
def test_a_module_that_has_it_differently_is_found(od: Side, kinds: tuple[Kind, ...] | None) -> None:
    """Presence, UPRN and record of what is live."""
    found = drift.compare(7, {**dict.fromkeys(Module, LIVE), Module.OD: od})

    assert (found.kinds if found else None) == kinds


def test_what_is_live_nowhere_does_not_differ() -> None:
    """Each module keeps it, or not, for its own orders."""
    assert drift.compare(7, {**dict.fromkeys(Module, ABSENT), Module.OD: LOGICAL}) is None


def test_a_digest_does_not_hang_on_how_a_record_is_written() -> None:
    """The order of fields, spaces, escapes, and fractions of whole numbers."""
    written = ['{"b": 1.0, "a": ["\\u00e9", {"y": null, "x": true}]}', '{"a":["é",{"x":true,"y":null}],"b":1}']

    assert len({drift.digest(json.loads(text)) for text in written}) == 1
    assert drift.digest({"a": 1}) != drift.digest({"a": 1.5}) != drift.digest({"a": "1"})
    # As the page for module owners describes it, so that they can compare theirs.
    assert drift.digest({"b": 1, "a": "é"}) == "aa58fba8483623bed37c1b02edfccbdd9a53123837c20bfa4cb4049993a2872e"


@pytest.mark.parametrize("told", ["AB12", "ab12"])
def test_a_module_may_tell_a_digest_instead(told: str) -> None:
    """In either case of its letters."""
    assert drift.side(AddressEntry(address_id=1, uprn=2, digest=told)) == Side(State.LIVE, 2, "ab12")


@dataclass
class Books:
    """Modules that keep their addresses in dictionaries; `asked` counts pages."""

    by_module: Mapping[Module, Mapping[int, AddressEntry]]
    asked: int = 0

    async def addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """A page."""
        self.asked += 1
        ids = sorted(address_id for address_id in self.by_module[module] if address_id > after)[:limit]
        return AddressPage(addresses=[self.by_module[module][address_id] for address_id in ids])


def entry(address_id: int, uprn: int, logical: bool) -> AddressEntry:
    """An address."""
    return AddressEntry(address_id=address_id, uprn=uprn, record={"n": uprn}, logical=logical)


BOOKS = st.fixed_dictionaries(
    {
        module: st.dictionaries(st.integers(1, 12), st.tuples(st.integers(1, 3), st.booleans()), max_size=12)
        for module in Module
    }
)


@given(books=BOOKS, page=st.integers(1, 5))
async def test_all_addresses_are_compared_in_pages_of_any_size(
    books: Mapping[Module, Mapping[int, tuple[int, bool]]], page: int
) -> None:
    """As dictionaries side by side would be."""
    told = Books({module: {id_: entry(id_, *has) for id_, has in book.items()} for module, book in books.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "PAGE", page)
        scanned = [each async for each in scanning.scan(told)]
    ids = sorted({id_ for book in books.values() for id_ in book})

    assert [address_id for address_id, _ in scanned] == ids
    for address_id, sides in scanned:
        assert sides == await scanning.look(told, address_id)
        for module, side in sides.items():
            uprn, logical = books[module].get(address_id, (None, None))
            state = State.ABSENT if uprn is None else State.LOGICAL if logical else State.LIVE
            assert (side.state, side.uprn) == (state, uprn)


async def test_only_a_few_pages_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each module the one that is compared and the next."""
    monkeypatch.setattr(scanning, "PAGE", 10)
    book = {id_: entry(id_, id_, logical=False) for id_ in range(1, 1_001)}
    told = Books(dict.fromkeys(Module, book))

    most = 0
    async for address_id, _ in scanning.scan(told):
        most = max(most, told.asked - len(Module) * ((address_id - 1) // 10))

    assert most <= 3 * len(Module)


async def test_a_module_that_repeats_itself_is_not_believed() -> None:
    """A page that does not go on after the one before would never end."""

    class Stuck(Books):
        async def addresses(self, module: Module, after: int, limit: int) -> AddressPage:
            return await super().addresses(module, 0, limit)

    book: dict[int, Any] = {id_: entry(id_, id_, logical=False) for id_ in range(1, scanning.PAGE + 1)}
    with pytest.raises(ModuleFailure, match="not in ascending order"):
        async for _ in scanning.scan(Stuck(dict.fromkeys(Module, book))):
            pass
