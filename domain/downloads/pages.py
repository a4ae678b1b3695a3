"""The source's protocol: one page of JSON, read exactly as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from domain.downloads.envelope import NULL, begins, is_true, require_success, text_of, total_of, unwrapped
from domain.faults import SourceFault

Row = tuple[msgspec.Raw, ...]
_Cells = dict[str, msgspec.Raw]

LARGE_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
"""Large pages are worked on in pieces of this size: a page of 60 MB must not take ten times as much."""

_NO_FIELD_NAME = re.compile(r'[\\"\x00-\x1f]')
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)` - at", re.DOTALL)


class Page(msgspec.Struct):
    """One answer of the source: how many rows there are in all, if it says so, and the rows as raw JSON cells."""

    total: int | None
    rows: list[Row]
    goes_on: bool = False
    """Whether the answer says that more pages follow, however few rows this one has."""
    repeated_keys: list[str] = []
    """Keys that a row has twice, if they were looked for."""


class NewColumns(Exception):
    """A page has keys that no row before it had."""

    def __init__(self, names: list[str], place: str) -> None:
        self.names = names
        self.place = place
        super().__init__(f"{', '.join(names)} at {place}")


class _Maps(msgspec.Struct):
    """A page with its rows as maps."""

    data: list[_Cells]
    total: msgspec.Raw = NULL
    status: Any = None
    msg: Any = None
    force_continue: Any = None


class PageReader:
    """Reads pages whose rows have the given columns; cells keep their JSON text, so that no digit is ever lost."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        plain = not any(_NO_FIELD_NAME.search(name) for name in columns)
        self._page = self._by_struct() if plain else self._by_key

    def read(self, body: bytes) -> Page:
        """Read a page.

        Raises:
            SourceFault: It is not what the protocol says; the sentence names what is wrong.
            NewColumns: It has keys that are no columns.
        """
        text = text_of(body)
        try:
            return self._page(text)
        except msgspec.DecodeError:
            return self._explain(text)

    def _by_struct(self) -> Callable[[bytes], Page]:
        """Rows as structs: the fast way, and the decoder itself refuses keys that are no columns."""
        names = {f"c{n}": name for n, name in enumerate(self.columns)}
        fields = [(field, msgspec.Raw, NULL) for field in names]
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        outside = [("total", msgspec.Raw, NULL), ("status", Any, None), ("msg", Any, None)]
        outside += [("force_continue", Any, None)]
        page = msgspec.defstruct("Page", [("data", list[row]), *outside], gc=False)  # type: ignore[valid-type]
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        as_tuple = msgspec.structs.astuple

        def read(text: bytes) -> Page:
            decoded = decoder.decode(text)
            require_success(decoded, text, has_rows=bool(decoded.data))
            goes_on = is_true(decoded.force_continue)
            return Page(total_of(bytes(decoded.total)), [as_tuple(row) for row in decoded.data], goes_on)

        return read

    def _by_key(self, text: bytes) -> Page:
        """Rows as maps: for the rare keys that cannot name a field."""
        page = msgspec.json.decode(text, type=_Maps)
        require_success(page, text, has_rows=bool(page.data))
        known = set(self.columns)
        for place, cells in enumerate(page.data):
            if cells.keys() - known:
                raise NewColumns([name for name in _keys(page.data) if name not in known], f"data[{place}]")
        rows = [tuple(cells.get(name, NULL) for name in self.columns) for cells in page.data]
        return Page(total_of(bytes(page.total)), rows, is_true(page.force_continue))

    def _explain(self, text: bytes) -> Page:
        """The page was not read at once: it is wrapped, or wrong, and then the sentence says how."""
        inner = unwrapped(text)
        try:
            return self._page(msgspec.json.encode(inner))
        except msgspec.ValidationError as error:
            if not _UNKNOWN_FIELD.match(str(error)):
                raise _row_fault(error) from None
            keys = _keys(_maps(inner.data))
            raise NewColumns([name for name in keys if name not in self.columns], _place(error)) from None


@dataclass(frozen=True)
class FirstLook:
    """What a page tells somebody who knows nothing of the source yet."""

    total: int | None
    columns: list[str]
    rows: int
    text: bytes
    goes_on: bool = False
    """Whether the answer says that more pages follow, however few rows this one has."""
    grouped: bool = False
    """Whether its rows stand in groups, one for each row head."""
    template: Any = None
    header: Any = None
    footer: Any = None


def first_look(body: bytes) -> FirstLook:
    """The total of a page, if it tells one, the keys of its rows in the order in which they first appear, and the rest.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    inner = unwrapped(text_of(body))
    grouped = begins(inner.data, b"{") and not begins(inner.data, b"{}")
    try:
        if grouped:
            groups = msgspec.json.decode(inner.data, type=dict[str, list[_Cells]])
            rows = list(chain.from_iterable(groups.values()))
            columns, count = _keys(rows), len(rows)
        else:
            columns, count = _columns(inner.data)
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None
    return FirstLook(
        total_of(bytes(inner.total)),
        columns,
        count,
        body,
        is_true(inner.force_continue),
        grouped,
        template=msgspec.json.decode(inner.template),
        header=msgspec.json.decode(inner.header),
        footer=msgspec.json.decode(inner.footer),
    )


def _columns(data: msgspec.Raw) -> tuple[list[str], int]:
    """The keys of all rows, and how many rows there are."""
    columns: dict[str, None] = {}
    count = 0
    for piece in pieces(data):
        try:
            rows = msgspec.json.decode(piece, type=list[_Cells])
        except msgspec.ValidationError:
            # Of the whole page it is told in which row.
            msgspec.json.decode(data, type=list[_Cells])
            raise
        columns |= dict.fromkeys(key for row in rows for key in row)
        count += len(rows)
    return list(columns), count


def pieces(data: msgspec.Raw) -> Iterator[bytes]:
    """A list of rows as it is, or as several lists where it is long.

    Raises:
        msgspec.ValidationError: It is long, and no list.
    """
    if len(data) <= LARGE_BYTES:
        yield bytes(data)
        return
    rows = msgspec.json.decode(data, type=list[msgspec.Raw])
    first = size = 0
    for at, row in enumerate(rows, start=1):
        size += len(row)
        if size >= PIECE_BYTES or at == len(rows):
            yield b"[%b]" % b",".join(rows[first:at])
            first, size = at, 0


class Groups(msgspec.Struct):
    """A page whose rows stand in groups: the rows of each row head, as JSON."""

    total: msgspec.Raw
    data: dict[str, msgspec.Raw]
    goes_on: bool


def groups_of(body: bytes) -> Groups:
    """The groups of a page, out of its envelope if it has one.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    inner = unwrapped(text_of(body))
    try:
        data = {} if bytes(inner.data) == b"[]" else msgspec.json.decode(inner.data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None
    return Groups(inner.total, data, is_true(inner.force_continue))


class Opened(msgspec.Struct):
    """A page whose rows nobody has looked at yet: they are valid JSON."""

    total: int | None
    data: msgspec.Raw
    goes_on: bool


def opened(body: bytes) -> Opened:
    """A page, out of its envelope if it has one.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    page = unwrapped(text_of(body))
    return Opened(total_of(bytes(page.total)), page.data, is_true(page.force_continue))


def row_texts(body: bytes) -> list[bytes]:
    """The rows of a page as texts that can be compared.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    return [bytes(row) for row in raw_rows(body)]


def raw_rows(body: bytes) -> list[msgspec.Raw]:
    """The rows of a page as they stand in it, without copies.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    data = opened(body).data
    if begins(data, b"{"):
        groups = msgspec.json.decode(data, type=dict[str, list[msgspec.Raw]])
        return list(chain.from_iterable(groups.values()))
    return msgspec.json.decode(data, type=list[msgspec.Raw])


def new_column_fault(found: NewColumns, columns: Sequence[str], page: int) -> SourceFault:
    """What a key that appears too late is to the user, unless new columns were asked for."""
    keys = ", ".join(f"`{name}`" for name in found.names)
    return SourceFault(
        "source_new_column",
        f"The key {keys} appears on page {page} at {found.place} but on no row of the first page, "
        f"which has: {', '.join(columns)}.",
        'Give every row the same keys, with null where there is no value, or ask for `"columns": "open"`.',
    )


def _maps(data: msgspec.Raw) -> list[_Cells]:
    try:
        return msgspec.json.decode(data, type=list[_Cells])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None


def _keys(rows: Sequence[_Cells]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _place(error: msgspec.ValidationError) -> str:
    path = re.search(r"`\$\.?([^`]*)`$", str(error))
    place = path[1] if path else "data"
    return place if place.startswith("data") else f"data{place}"


def _row_fault(error: msgspec.ValidationError) -> SourceFault:
    place = _place(error)
    if place == "data":
        return SourceFault(
            "source_bad_data",
            f"The source's `data` is not a list of rows ({error}).",
            "Answer `data` as a list of objects, empty where there are no rows.",
        )
    return SourceFault(
        "source_bad_row",
        f"A row of the source is not an object: {place} ({error}).",
        'Answer every row as an object, e.g. {"id": 1, "name": "…"}.',
    )
