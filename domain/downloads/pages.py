"""The source's protocol: one page of JSON, read exactly as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from domain.downloads.envelope import (
    NULL,
    decode_body,
    is_flag_set,
    parse_total,
    require_success,
    starts_with,
    unwrap_page,
)
from domain.faults import SourceFault

Row = tuple[msgspec.Raw, ...]
_Cells = dict[str, msgspec.Raw]

LARGE_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
"""Large pages are worked on in pieces of this size: a page of 60 MB must not take ten times as much."""

_NO_FIELD_NAME = re.compile(r'[\\"\x00-\x1f]')
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)` - at", re.DOTALL)


class SourcePage(msgspec.Struct):
    """One answer of the source: how many rows there are in all, if it says so, and the rows as raw JSON cells."""

    total: int | None
    rows: list[Row]
    has_more: bool = False
    """Whether the answer says that more pages follow, however few rows this one has."""
    repeated_keys: list[str] = []
    """Keys that a row has twice, if they were looked for."""


class NewColumnsFound(Exception):
    """A page has keys that no row before it had."""

    def __init__(self, names: list[str], place: str) -> None:
        self.names = names
        self.place = place
        super().__init__(f"{', '.join(names)} at {place}")


class _PageOfMaps(msgspec.Struct):
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
        self._read_page = self._read_by_struct() if plain else self._read_by_key

    def read(self, body: bytes) -> SourcePage:
        """Read a page.

        Raises:
            SourceFault: It is not what the protocol says; the sentence names what is wrong.
            NewColumns: It has keys that are no columns.
        """
        text = decode_body(body)
        try:
            return self._read_page(text)
        except msgspec.DecodeError:
            return self._read_wrapped_or_raise(text)

    def _read_by_struct(self) -> Callable[[bytes], SourcePage]:
        """Rows as structs: the fast way, and the decoder itself refuses keys that are no columns."""
        names = {f"c{n}": name for n, name in enumerate(self.columns)}
        fields = [(field, msgspec.Raw, NULL) for field in names]
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        outside = [("total", msgspec.Raw, NULL), ("status", Any, None), ("msg", Any, None)]
        outside += [("force_continue", Any, None)]
        page = msgspec.defstruct("Page", [("data", list[row]), *outside], gc=False)  # type: ignore[valid-type]
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        as_tuple = msgspec.structs.astuple

        def read(text: bytes) -> SourcePage:
            decoded = decoder.decode(text)
            require_success(decoded, text, has_rows=bool(decoded.data))
            has_more = is_flag_set(decoded.force_continue)
            return SourcePage(parse_total(bytes(decoded.total)), [as_tuple(row) for row in decoded.data], has_more)

        return read

    def _read_by_key(self, text: bytes) -> SourcePage:
        """Rows as maps: for the rare keys that cannot name a field."""
        page = msgspec.json.decode(text, type=_PageOfMaps)
        require_success(page, text, has_rows=bool(page.data))
        known = set(self.columns)
        for place, cells in enumerate(page.data):
            if cells.keys() - known:
                raise NewColumnsFound(
                    [name for name in _collect_keys(page.data) if name not in known], f"data[{place}]"
                )
        rows = [tuple(cells.get(name, NULL) for name in self.columns) for cells in page.data]
        return SourcePage(parse_total(bytes(page.total)), rows, is_flag_set(page.force_continue))

    def _read_wrapped_or_raise(self, text: bytes) -> SourcePage:
        """The page was not read at once: it is wrapped, or wrong, and then the sentence says how."""
        inner = unwrap_page(text)
        try:
            return self._read_page(msgspec.json.encode(inner))
        except msgspec.ValidationError as error:
            if not _UNKNOWN_FIELD.match(str(error)):
                raise _row_fault(error) from None
            keys = _collect_keys(_read_maps(inner.data))
            raise NewColumnsFound([name for name in keys if name not in self.columns], _find_place(error)) from None


@dataclass(frozen=True)
class FirstPage:
    """What a page tells somebody who knows nothing of the source yet."""

    total: int | None
    columns: list[str]
    rows: int
    text: bytes
    has_more: bool = False
    """Whether the answer says that more pages follow, however few rows this one has."""
    grouped: bool = False
    """Whether its rows stand in groups, one for each row head."""
    template: Any = None
    header: Any = None
    footer: Any = None


def read_first_page(body: bytes) -> FirstPage:
    """The total of a page, if it tells one, the keys of its rows in the order in which they first appear, and the rest.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    inner = unwrap_page(decode_body(body))
    grouped = starts_with(inner.data, b"{") and not starts_with(inner.data, b"{}")
    try:
        if grouped:
            groups = msgspec.json.decode(inner.data, type=dict[str, list[_Cells]])
            rows = list(chain.from_iterable(groups.values()))
            columns, count = _collect_keys(rows), len(rows)
        else:
            columns, count = _scan_columns(inner.data)
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None
    return FirstPage(
        parse_total(bytes(inner.total)),
        columns,
        count,
        body,
        is_flag_set(inner.force_continue),
        grouped,
        template=msgspec.json.decode(inner.template),
        header=msgspec.json.decode(inner.header),
        footer=msgspec.json.decode(inner.footer),
    )


def _scan_columns(data: msgspec.Raw) -> tuple[list[str], int]:
    """The keys of all rows, and how many rows there are."""
    columns: dict[str, None] = {}
    count = 0
    for piece in split_rows(data):
        try:
            rows = msgspec.json.decode(piece, type=list[_Cells])
        except msgspec.ValidationError:
            # Of the whole page it is told in which row.
            msgspec.json.decode(data, type=list[_Cells])
            raise
        columns |= dict.fromkeys(key for row in rows for key in row)
        count += len(rows)
    return list(columns), count


def split_rows(data: msgspec.Raw) -> Iterator[bytes]:
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


class GroupedRows(msgspec.Struct):
    """A page whose rows stand in groups: the rows of each row head, as JSON."""

    total: msgspec.Raw
    data: dict[str, msgspec.Raw]
    has_more: bool


def read_grouped_rows(body: bytes) -> GroupedRows:
    """The groups of a page, out of its envelope if it has one.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    inner = unwrap_page(decode_body(body))
    try:
        data = {} if bytes(inner.data) == b"[]" else msgspec.json.decode(inner.data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None
    return GroupedRows(inner.total, data, is_flag_set(inner.force_continue))


class UnreadPage(msgspec.Struct):
    """A page whose rows nobody has looked at yet: they are valid JSON."""

    total: int | None
    data: msgspec.Raw
    has_more: bool


def read_envelope(body: bytes) -> UnreadPage:
    """A page, out of its envelope if it has one.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    page = unwrap_page(decode_body(body))
    return UnreadPage(parse_total(bytes(page.total)), page.data, is_flag_set(page.force_continue))


def read_row_texts(body: bytes) -> list[bytes]:
    """The rows of a page as texts that can be compared.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    return [bytes(row) for row in read_raw_rows(body)]


def read_raw_rows(body: bytes) -> list[msgspec.Raw]:
    """The rows of a page as they stand in it, without copies.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    data = read_envelope(body).data
    if starts_with(data, b"{"):
        groups = msgspec.json.decode(data, type=dict[str, list[msgspec.Raw]])
        return list(chain.from_iterable(groups.values()))
    return msgspec.json.decode(data, type=list[msgspec.Raw])


def build_new_column_fault(found: NewColumnsFound, columns: Sequence[str], page: int) -> SourceFault:
    """What a key that appears too late is to the user, unless new columns were asked for."""
    keys = ", ".join(f"`{name}`" for name in found.names)
    return SourceFault(
        "source_new_column",
        f"The key {keys} appears on page {page} at {found.place} but on no row of the first page, "
        f"which has: {', '.join(columns)}.",
        'Give every row the same keys, with null where there is no value, or ask for `"columns": "open"`.',
    )


def _read_maps(data: msgspec.Raw) -> list[_Cells]:
    try:
        return msgspec.json.decode(data, type=list[_Cells])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None


def _collect_keys(rows: Sequence[_Cells]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _find_place(error: msgspec.ValidationError) -> str:
    path = re.search(r"`\$\.?([^`]*)`$", str(error))
    place = path[1] if path else "data"
    return place if place.startswith("data") else f"data{place}"


def _row_fault(error: msgspec.ValidationError) -> SourceFault:
    place = _find_place(error)
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
