"""The source's protocol: one page of JSON, read exactly as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from domain.faults import SourceFault

Row = tuple[msgspec.Raw, ...]

_NULL = msgspec.Raw(b"null")
_NO_FIELD_NAME = re.compile(r'[\\"\x00-\x1f]')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Page(msgspec.Struct):
    """One answer of the source: how many rows there are in all, and the rows of this page as raw JSON cells."""

    total: int
    rows: list[Row]


class _Envelope(msgspec.Struct):
    total: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class PageReader:
    """Reads pages whose rows have the given columns; cells keep their JSON text, so that no digit is ever lost."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        plain = not any(_NO_FIELD_NAME.search(name) for name in columns)
        self._rows = self._by_struct() if plain else self._by_key

    def read(self, body: bytes) -> Page:
        """Read a page.

        Raises:
            SourceFault: It is not what the protocol says; the sentence names what is wrong.
        """
        try:
            total, data = _open(body)
        except SourceFault as fault:
            # The first page was right, so this one may well be when it is asked for again.
            fault.transient = True
            raise
        try:
            return Page(total, self._rows(data))
        except msgspec.ValidationError as error:
            raise _row_fault(str(error), self.columns) from None

    def _by_struct(self) -> Callable[[msgspec.Raw], list[Row]]:
        """Rows as structs: the fast way, and the decoder itself refuses keys that are not columns."""
        names = {f"c{n}": name for n, name in enumerate(self.columns)}
        fields = [(field, msgspec.Raw, _NULL) for field in names]
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]
        return lambda data: [msgspec.structs.astuple(row) for row in decoder.decode(data)]

    def _by_key(self, data: msgspec.Raw) -> list[Row]:
        """Rows as maps: for the rare keys that cannot name a field."""
        rows = []
        for place, cells in enumerate(msgspec.json.decode(data, type=list[dict[str, msgspec.Raw]])):
            unknown = cells.keys() - set(self.columns)
            if unknown:
                raise _new_column(min(unknown), f"data[{place}]", self.columns)
            rows.append(tuple(cells.get(name, _NULL) for name in self.columns))
        return rows


def columns_of(body: bytes) -> tuple[int, list[str]]:
    """The total of a page and the keys of its rows, in the order in which they first appear.

    Raises:
        SourceFault: It is not what the protocol says.
    """
    total, data = _open(body)
    try:
        rows = msgspec.json.decode(data, type=list[dict[str, msgspec.Raw]])
    except msgspec.ValidationError as error:
        raise _row_fault(str(error), ()) from None
    return total, list(dict.fromkeys(key for row in rows for key in row))


def _open(body: bytes) -> tuple[int, msgspec.Raw]:
    envelope = _decode(body)
    if isinstance(envelope.data, msgspec.UnsetType):
        raise SourceFault(
            "source_no_data",
            "The source's answer has no `data`.",
            'Answer {"total": <number of rows>, "data": [{…}, …]} for every page.',
        )
    if isinstance(envelope.total, msgspec.UnsetType):
        raise SourceFault(
            "source_no_total",
            "The source's answer has no `total`.",
            'Answer {"total": <number of rows>, "data": [{…}, …]} for every page.',
        )
    return _total(bytes(envelope.total)), envelope.data


def _decode(body: bytes) -> _Envelope:
    try:
        # The decoder passes cells on unread, so that nobody else would see bytes that are no UTF-8.
        if not body.isascii():
            body.decode()
        return msgspec.json.decode(_without_lone_surrogates(body), type=_Envelope)
    except msgspec.ValidationError:
        raise SourceFault(
            "source_not_object",
            f"The source answered JSON that is not an object: {_excerpt(body)}.",
            'Answer {"total": <number of rows>, "data": [{…}, …]} for every page.',
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceFault(
            "source_not_json",
            f"The source did not answer JSON ({error}): {_excerpt(body)}.",
            "Check the URL in a terminal; it must answer application/json in UTF-8.",
        ) from None


def _without_lone_surrogates(body: bytes) -> bytes:
    """Half of a surrogate pair is no character in any encoding; encoders write it for text cut in the middle."""
    if not _SURROGATE.search(body):
        return body
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], body)


def _total(raw: bytes) -> int:
    text = raw.decode().strip('"')
    if not re.fullmatch(r"\d{1,15}", text):
        raise SourceFault(
            "source_bad_total",
            f"The source's `total` is {_excerpt(raw)}, not a whole number of rows.",
            "Answer the number of all rows that match, from 0 up.",
        )
    return int(text)


def _row_fault(message: str, columns: Sequence[str]) -> SourceFault:
    path = re.search(r"`(\$[^`]*)`$", message)
    place = path[1].replace("$", "data", 1) if path else "data"
    unknown = re.match(r"Object contains unknown field `(.*)` - at", message, re.DOTALL)
    if unknown:
        return _new_column(unknown[1], place, columns)
    if place == "data":
        return SourceFault(
            "source_bad_data",
            f"The source's `data` is not a list of rows ({message}).",
            "Answer `data` as a list of objects, empty where there are no rows.",
        )
    return SourceFault(
        "source_bad_row",
        f"A row of the source is not an object: {place} ({message}).",
        'Answer every row as an object, e.g. {"id": 1, "name": "…"}.',
    )


def _new_column(name: str, place: str, columns: Sequence[str]) -> SourceFault:
    return SourceFault(
        "source_new_column",
        f"The key `{name}` appears at {place} but on no row of the first page, whose keys are: {', '.join(columns)}.",
        "Give every row the same keys, with null where there is no value.",
    )


def _excerpt(body: bytes, limit: int = 80) -> str:
    text = body[: limit * 4].decode(errors="replace").strip()
    return f"“{text[:limit]}…”" if len(text) > limit else f"“{text}”"
