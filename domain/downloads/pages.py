"""Pages of a source: JSON answers, read exactly as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from domain.downloads.envelope import (
    NULL,
    is_true_or_one,
    parse_total_unless_null,
    require_no_reported_failure,
    require_utf8_and_replace_lone_surrogates,
    starts_with_bytes,
    unwrap_page_or_raise_reported_failure,
)
from domain.faults import SourceFault

Row = tuple[msgspec.Raw, ...]
_Cells = dict[str, msgspec.Raw]

LARGE_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
"""Size of the pieces in which large pages are processed, so that a page of 60 MB does not take ten times as much
memory."""

_NO_FIELD_NAME = re.compile(r'[\\"\x00-\x1f]')
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)` - at", re.DOTALL)


class SourcePage(msgspec.Struct):
    """One page: its total, if the source reports one, and its rows as raw JSON cells."""

    total: int | None
    rows: list[Row]
    has_more: bool = False
    """Whether the page announces more pages, however few rows it has."""
    repeated_keys: list[str] = []
    """Keys that a row has twice, if they were looked for."""


class NewColumnsFound(Exception):
    """Raised if a page has keys that no row before it had."""

    def __init__(self, names: list[str], place: str) -> None:
        self.names = names
        self.place = place
        super().__init__(f"{', '.join(names)} at {place}")


class _PageOfMaps(msgspec.Struct):
    """A page whose rows are decoded as maps."""

    data: list[_Cells]
    total: msgspec.Raw = NULL
    status: Any = None
    msg: Any = None
    force_continue: Any = None


class PageReader:
    """Reads pages whose rows have the given columns. Cells stay JSON text, so that no digit is lost."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        plain = not any(_NO_FIELD_NAME.search(name) for name in columns)
        self._read_page = self._build_struct_reader() if plain else self._read_rows_as_maps

    def read(self, body: bytes) -> SourcePage:
        """Read a page.

        Raises:
            SourceFault: It violates the protocol; the message says how.
            NewColumnsFound: It has keys that are no columns.
        """
        text = require_utf8_and_replace_lone_surrogates(body)
        try:
            return self._read_page(text)
        except msgspec.DecodeError:
            return self._unwrap_and_read_page_or_raise_fault_or_new_columns(text)

    def _build_struct_reader(self) -> Callable[[bytes], SourcePage]:
        """Build a reader of rows as structs: it is fast, and the decoder itself rejects keys that are no columns."""
        names = {f"c{n}": name for n, name in enumerate(self.columns)}
        fields = [(field, msgspec.Raw, NULL) for field in names]
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        outside = [("total", msgspec.Raw, NULL), ("status", Any, None), ("msg", Any, None)]
        outside += [("force_continue", Any, None)]
        page = msgspec.defstruct("Page", [("data", list[row]), *outside], gc=False)  # type: ignore[valid-type]
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        as_tuple = msgspec.structs.astuple

        def decode_page_by_struct(text: bytes) -> SourcePage:
            decoded = decoder.decode(text)
            require_no_reported_failure(decoded, text, has_rows=bool(decoded.data))
            has_more = is_true_or_one(decoded.force_continue)
            return SourcePage(
                parse_total_unless_null(bytes(decoded.total)), [as_tuple(row) for row in decoded.data], has_more
            )

        return decode_page_by_struct

    def _read_rows_as_maps(self, text: bytes) -> SourcePage:
        """Read rows as maps, for the rare keys that cannot be names of fields."""
        page = msgspec.json.decode(text, type=_PageOfMaps)
        require_no_reported_failure(page, text, has_rows=bool(page.data))
        known = set(self.columns)
        for place, cells in enumerate(page.data):
            if cells.keys() - known:
                raise NewColumnsFound(
                    [name for name in _collect_keys(page.data) if name not in known], f"data[{place}]"
                )
        rows = [tuple(cells.get(name, NULL) for name in self.columns) for cells in page.data]
        return SourcePage(parse_total_unless_null(bytes(page.total)), rows, is_true_or_one(page.force_continue))

    def _unwrap_and_read_page_or_raise_fault_or_new_columns(self, text: bytes) -> SourcePage:
        """Read a page that is wrapped, or raise a fault that says what is wrong with it."""
        inner = unwrap_page_or_raise_reported_failure(text)
        try:
            return self._read_page(msgspec.json.encode(inner))
        except msgspec.ValidationError as error:
            if not _UNKNOWN_FIELD.match(str(error)):
                raise _build_row_fault(error) from None
            keys = _collect_keys(_decode_rows_as_maps(inner.data))
            raise NewColumnsFound(
                [name for name in keys if name not in self.columns], _get_json_path_of_error(error)
            ) from None


@dataclass(frozen=True)
class FirstPage:
    """The first page of a source about which nothing is known yet."""

    total: int | None
    columns: list[str]
    rows: int
    text: bytes
    has_more: bool = False
    """Whether the page announces more pages, however few rows it has."""
    grouped: bool = False
    """Whether its rows are grouped by row head."""
    template: Any = None
    header: Any = None
    footer: Any = None


def read_first_page(body: bytes) -> FirstPage:
    """Read the first page: its total, its rows and their keys in order of first appearance, and its template.

    Raises:
        SourceFault: It violates the protocol.
    """
    inner = unwrap_page_or_raise_reported_failure(require_utf8_and_replace_lone_surrogates(body))
    grouped = starts_with_bytes(inner.data, b"{") and not starts_with_bytes(inner.data, b"{}")
    try:
        if grouped:
            groups = msgspec.json.decode(inner.data, type=dict[str, list[_Cells]])
            rows = list(chain.from_iterable(groups.values()))
            columns, count = _collect_keys(rows), len(rows)
        else:
            columns, count = _collect_keys_and_count_rows(inner.data)
    except msgspec.ValidationError as error:
        raise _build_row_fault(error) from None
    return FirstPage(
        parse_total_unless_null(bytes(inner.total)),
        columns,
        count,
        body,
        is_true_or_one(inner.force_continue),
        grouped,
        template=_decode_template_header_or_footer(inner.template),
        header=_decode_template_header_or_footer(inner.header),
        footer=_decode_template_header_or_footer(inner.footer),
    )


def _decode_template_header_or_footer(region: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(region)
    except msgspec.ValidationError as error:
        raise SourceFault(
            "source_bad_drawing",
            f"The template, header or footer that the source answers cannot be read: {error}.",
            "Answer numbers that a computer can hold, or texts.",
        ) from None


def _collect_keys_and_count_rows(data: msgspec.Raw) -> tuple[list[str], int]:
    """Return the keys and the number of rows."""
    columns: dict[str, None] = {}
    count = 0
    for piece in split_rows_into_pieces(data):
        try:
            rows = msgspec.json.decode(piece, type=list[_Cells])
        except msgspec.ValidationError:
            # Decode the whole page, so that the error names the row.
            msgspec.json.decode(data, type=list[_Cells])
            raise
        columns |= dict.fromkeys(key for row in rows for key in row)
        count += len(rows)
    return list(columns), count


def split_rows_into_pieces(data: msgspec.Raw) -> Iterator[bytes]:
    """Yield a list of rows, in pieces if it is large.

    Raises:
        msgspec.ValidationError: It is large and not a list.
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


class RowsByRowHead(msgspec.Struct):
    """A page whose rows are grouped: the rows of each row head, as JSON."""

    total: msgspec.Raw
    data: dict[str, msgspec.Raw]
    has_more: bool


def read_grouped_rows(body: bytes) -> RowsByRowHead:
    """Read a page of grouped rows, without its envelope.

    Raises:
        SourceFault: It violates the protocol.
    """
    inner = unwrap_page_or_raise_reported_failure(require_utf8_and_replace_lone_surrogates(body))
    try:
        data = {} if bytes(inner.data) == b"[]" else msgspec.json.decode(inner.data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise _build_row_fault(error) from None
    return RowsByRowHead(inner.total, data, is_true_or_one(inner.force_continue))


class UndecodedPage(msgspec.Struct):
    """A page whose rows have not been decoded yet; they are valid JSON."""

    total: int | None
    data: msgspec.Raw
    has_more: bool


def read_undecoded_page(body: bytes) -> UndecodedPage:
    """Read a page without decoding its rows.

    Raises:
        SourceFault: It violates the protocol.
    """
    page = unwrap_page_or_raise_reported_failure(require_utf8_and_replace_lone_surrogates(body))
    return UndecodedPage(parse_total_unless_null(bytes(page.total)), page.data, is_true_or_one(page.force_continue))


def read_row_texts(body: bytes) -> list[bytes]:
    """Return the rows of a page as texts, to compare them.

    Raises:
        SourceFault: It violates the protocol.
    """
    return [bytes(row) for row in read_raw_rows(body)]


def read_raw_rows(body: bytes) -> list[msgspec.Raw]:
    """Return the rows of a page as raw JSON, without copies.

    Raises:
        SourceFault: It violates the protocol.
    """
    data = read_undecoded_page(body).data
    if starts_with_bytes(data, b"{"):
        groups = msgspec.json.decode(data, type=dict[str, list[msgspec.Raw]])
        return list(chain.from_iterable(groups.values()))
    return msgspec.json.decode(data, type=list[msgspec.Raw])


def build_new_column_fault(found: NewColumnsFound, columns: Sequence[str], page: int) -> SourceFault:
    """Build the fault for keys that appear after the first page, unless `columns` is `open`."""
    keys = ", ".join(f"`{name}`" for name in found.names)
    return SourceFault(
        "source_new_column",
        f"The key {keys} appears on page {page} at {found.place} but on no row of the first page, "
        f"which has: {', '.join(columns)}.",
        'Give every row the same keys, with null where there is no value, or ask for `"columns": "open"`.',
    )


def _decode_rows_as_maps(data: msgspec.Raw) -> list[_Cells]:
    try:
        return msgspec.json.decode(data, type=list[_Cells])
    except msgspec.ValidationError as error:
        raise _build_row_fault(error) from None


def _collect_keys(rows: Sequence[_Cells]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _get_json_path_of_error(error: msgspec.ValidationError) -> str:
    path = re.search(r"`\$\.?([^`]*)`$", str(error))
    place = path[1] if path else "data"
    return place if place.startswith("data") else f"data{place}"


def _build_row_fault(error: msgspec.ValidationError) -> SourceFault:
    place = _get_json_path_of_error(error)
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
