"""The source's protocol: one page of JSON, read exactly as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from domain.downloads import utf8
from domain.faults import SourceFault

Row = tuple[msgspec.Raw, ...]
_Cells = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")
_NO_FIELD_NAME = re.compile(r'[\\"\x00-\x1f]')
_SURROGATE = re.compile(rb"\\u[dD]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)` - at", re.DOTALL)
_SUCCESSES = (None, 0, 200, "0", "200", "ok", "success")
_PROTOCOL = 'Answer {"total": <number of rows>, "data": [{…}, …]} for every page.'


class Page(msgspec.Struct):
    """One answer of the source: how many rows there are in all, if it says so, and the rows as raw JSON cells."""

    total: int | None
    rows: list[Row]


class NewColumns(Exception):
    """A page has keys that no row before it had."""

    def __init__(self, names: list[str], place: str) -> None:
        self.names = names
        self.place = place
        super().__init__(f"{', '.join(names)} at {place}")


class _Wrapped(msgspec.Struct):
    """A page as it comes, or as a source wraps it: `{"status": 200, "msg": "", "data": {"total": …, "data": […]}}`."""

    total: msgspec.Raw = _NULL
    data: msgspec.Raw = _NULL
    status: Any = None
    msg: Any = None
    template: msgspec.Raw = _NULL
    header: msgspec.Raw = _NULL
    footer: msgspec.Raw = _NULL


class _Maps(msgspec.Struct):
    """A page with its rows as maps."""

    data: list[_Cells]
    total: msgspec.Raw = _NULL
    status: Any = None
    msg: Any = None


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
        text = _text(body)
        try:
            return self._page(text)
        except SourceFault as fault:
            # The first page was right, so this one may well be when it is asked for again.
            fault.transient = True
            raise
        except msgspec.DecodeError:
            return self._explain(text)

    def _by_struct(self) -> Callable[[bytes], Page]:
        """Rows as structs: the fast way, and the decoder itself refuses keys that are no columns."""
        names = {f"c{n}": name for n, name in enumerate(self.columns)}
        fields = [(field, msgspec.Raw, _NULL) for field in names]
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        outside = [("total", msgspec.Raw, _NULL), ("status", Any, None), ("msg", Any, None)]
        page = msgspec.defstruct("Page", [("data", list[row]), *outside], gc=False)  # type: ignore[valid-type]
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        as_tuple = msgspec.structs.astuple

        def read(text: bytes) -> Page:
            decoded = decoder.decode(text)
            _require_success(decoded.status, decoded.msg)
            return Page(_total(bytes(decoded.total)), [as_tuple(row) for row in decoded.data])

        return read

    def _by_key(self, text: bytes) -> Page:
        """Rows as maps: for the rare keys that cannot name a field."""
        page = msgspec.json.decode(text, type=_Maps)
        _require_success(page.status, page.msg)
        known = set(self.columns)
        for place, cells in enumerate(page.data):
            if cells.keys() - known:
                raise NewColumns([name for name in _keys(page.data) if name not in known], f"data[{place}]")
        rows = [tuple(cells.get(name, _NULL) for name in self.columns) for cells in page.data]
        return Page(_total(bytes(page.total)), rows)

    def _explain(self, text: bytes) -> Page:
        """The page was not read at once: it is wrapped, or wrong, and then the sentence says how."""
        try:
            inner = _unwrapped(text)
        except SourceFault as fault:
            fault.transient = True
            raise
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
    inner = _unwrapped(_text(body))
    grouped = bytes(inner.data).startswith(b"{") and bytes(inner.data) != b"{}"
    try:
        if grouped:
            groups = msgspec.json.decode(inner.data, type=dict[str, list[_Cells]])
            rows = list(chain.from_iterable(groups.values()))
        else:
            rows = msgspec.json.decode(inner.data, type=list[_Cells])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None
    return FirstLook(
        _total(bytes(inner.total)),
        _keys(rows),
        len(rows),
        body,
        grouped,
        template=msgspec.json.decode(inner.template),
        header=msgspec.json.decode(inner.header),
        footer=msgspec.json.decode(inner.footer),
    )


class Groups(msgspec.Struct):
    """A page whose rows stand in groups: the rows of each row head, as JSON."""

    total: msgspec.Raw
    data: dict[str, msgspec.Raw]


def groups_of(body: bytes) -> Groups:
    """The groups of a page, out of its envelope if it has one.

    Raises:
        SourceFault: It is not what the protocol says, and may be when it is asked for again.
    """
    try:
        inner = _unwrapped(_text(body))
        data = {} if bytes(inner.data) == b"[]" else msgspec.json.decode(inner.data, type=dict[str, msgspec.Raw])
    except SourceFault as fault:
        fault.transient = True
        raise
    except msgspec.ValidationError as error:
        bad_row = _row_fault(error)
        bad_row.transient = True
        raise bad_row from None
    return Groups(inner.total, data)


def opened(body: bytes) -> tuple[int | None, bytes]:
    """The total of a page, if it tells one, and its rows: valid JSON that nobody has looked at yet.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    page = _unwrapped(_text(body))
    return _total(bytes(page.total)), bytes(page.data)


def new_column_fault(found: NewColumns, columns: Sequence[str]) -> SourceFault:
    """What a key that appears too late is to the user, unless new columns were asked for."""
    keys = ", ".join(f"`{name}`" for name in found.names)
    return SourceFault(
        "source_new_column",
        f"The key {keys} appears at {found.place} but on no row of the first page, which has: {', '.join(columns)}.",
        'Give every row the same keys, with null where there is no value, or ask for `"columns": "open"`.',
    )


def _maps(data: msgspec.Raw) -> list[_Cells]:
    try:
        return msgspec.json.decode(data, type=list[_Cells])
    except msgspec.ValidationError as error:
        raise _row_fault(error) from None


def _keys(rows: Sequence[_Cells]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _text(body: bytes) -> bytes:
    """The body as text that the decoder takes.

    It passes cells on unread, so nobody else would see bytes that are no UTF-8. Half of a surrogate pair is no
    character in any encoding; encoders write it for text that was cut in the middle.
    """
    if not utf8.is_valid(body):
        fault = _not_json(body, "it is not UTF-8")
        fault.transient = True
        raise fault
    first_escape = body.find(b"\\")
    if first_escape < 0 or not _SURROGATE.search(body, first_escape):
        return body
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], body)


def _unwrapped(text: bytes) -> _Wrapped:
    """The page itself, out of its envelope if it has one."""
    try:
        page = msgspec.json.decode(text, type=_Wrapped)
        _require_success(page.status, page.msg)
        if bytes(page.data).startswith(b"{") and bytes(page.total) == b"null":
            inner = msgspec.json.decode(page.data, type=_Wrapped)
            page = inner if bytes(inner.data) != b"null" else page
    except msgspec.ValidationError:
        raise SourceFault(
            "source_not_object", f"The source answered JSON that is not an object: {_excerpt(text)}.", _PROTOCOL
        ) from None
    except msgspec.DecodeError as error:
        raise _not_json(text, str(error)) from None
    if bytes(page.data) in (b"null", b"{}", b"[]") and bytes(page.total).strip(b'"') == b"0":
        # Some languages cannot tell an empty list from an empty map, or from nothing.
        page.data = msgspec.Raw(b"[]")
    if bytes(page.data) == b"null":
        raise SourceFault("source_no_data", "The source's answer has no `data`.", _PROTOCOL)
    return page


def _require_success(status: Any, msg: Any) -> None:
    """A source that wraps its answers tells its failures in the envelope, with a status of 200 on the wire."""
    if msg is None or status in _SUCCESSES:
        return
    raise SourceFault(
        "source_refused",
        f"The source answered status {str(status)[:20]} in its envelope: {_excerpt(str(msg).encode())}.",
        "Mend the request that the URL makes, or ask the source's owner.",
    )


def _not_json(text: bytes, why: str) -> SourceFault:
    return SourceFault(
        "source_not_json",
        f"The source did not answer JSON ({why}): {_excerpt(text)}.",
        "Check the URL in a terminal; it must answer application/json in UTF-8.",
    )


def _total(raw: bytes) -> int | None:
    text = raw.decode().strip('"')
    if text == "null":
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise SourceFault(
            "source_bad_total",
            f"The source's `total` is {_excerpt(raw)}, not a whole number of rows.",
            "Answer the number of all rows that match, from 0 up.",
        )
    return int(text)


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


def _excerpt(body: bytes, limit: int = 80) -> str:
    text = body[: limit * 4].decode(errors="replace").strip()
    return f"“{text[:limit]}…”" if len(text) > limit else f"“{text}”"
