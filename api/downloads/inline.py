"""Inline: the rows that came with a request, in the caller's own spelling, so that no number loses a digit."""

from __future__ import annotations

from itertools import repeat

import msgspec

from api.downloads.requests import NewDownload
from api.downloads.tables import Table
from api.http.routes import Call

_NOTHING = msgspec.Raw(b"null")


class _Rows(msgspec.Struct):
    data: msgspec.Raw = _NOTHING


class _Sent(_Rows):
    sheets: list[_Rows] | None = None


def rows(call: Call) -> bytes:
    """The rows of a request that has one table, as JSON text."""
    return bytes(msgspec.json.decode(call.request_state.body, type=_Rows).data)


def texts(call: Call, body: NewDownload) -> list[bytes]:
    """The rows of each table as JSON text; `null` for those that have a source."""
    sent = msgspec.json.decode(call.request_state.body, type=_Sent)
    if sent.sheets is not None:
        return [bytes(sheet.data) for sheet in sent.sheets]
    if body.multi is not None and isinstance(body.data, list):
        return [bytes(rows) for rows in msgspec.json.decode(sent.data, type=list[msgspec.Raw])]
    return [bytes(sent.data)]


async def put(call: Call, body: NewDownload, tables: list[Table], keys: list[str | None]) -> None:
    """Lay the rows down as a source would answer them, for each table that has a key."""
    sent = texts(call, body)
    for table, key, text in zip(tables, keys, sent if len(sent) > 1 else repeat(sent[0]), strict=False):
        if key is not None:
            page = b'{"total":%d,"data":%b}' % (table.row_count, text)
            await call.services.objects.put(key, page, content_type="application/json")
