"""Delivery: every way to the file ends in a presigned address of five minutes, made at the moment of the click."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import assert_never

from aiohttp import hdrs, web
from pydantic import AwareDatetime, Field

from api.downloads import answers, links
from api.downloads.board import missing
from api.downloads.links import Link
from api.downloads.room import TaskPath, board, routes
from api.http.models import Request, Response
from api.http.routes import Access, Call
from domain.downloads.models import DownloadOrder, FileType, State, StoredFile
from domain.downloads.sinks import csv
from domain.faults import Conflict, Fault, FaultRecord, Gone, Missing
from infra.objects import content_disposition
from stores.downloads import searching
from stores.tables.downloads import Download

PRESIGNED_SECONDS = 300
LINK_MIN_SECONDS = 60
LINK_DEFAULT_SECONDS = 24 * 3600
LINK_MAX_SECONDS = 7 * 24 * 3600
PARQUET_TYPE = "application/vnd.apache.parquet"
OCTETS = "application/octet-stream"
SEND_SECONDS = 30.0
"""How long a caller may take for a piece of a file that we send ourselves."""

NO_FILE: dict[str, type[Fault]] = {
    "download_unfinished": Conflict,
    "download_failed": Conflict,
    "download_cancelled": Conflict,
    "download_expired": Gone,
}


class LinkQuery(Request):
    """How long a link shall be good."""

    expires_in: int = Field(
        default=LINK_DEFAULT_SECONDS,
        ge=LINK_MIN_SECONDS,
        le=LINK_MAX_SECONDS,
        description="seconds; it is never good for longer than the file is kept",
    )


class MadeLink(Response):
    """A link that needs no key."""

    url: str = Field(description="whoever has it gets the file")
    expires_at: AwareDatetime


class LinkPath(Request):
    """A link's own text."""

    token: str = Field(pattern=links.PATTERN)


@dataclass(frozen=True, slots=True)
class File:
    """A file that can be had."""

    stored: StoredFile
    content_type: str
    expires_at: datetime


@routes.get("/v1/downloads/{task_id}/file", access=Access.PROJECT, status=HTTPStatus.FOUND, problems=NO_FILE)
async def file(call: Call, path: TaskPath) -> web.StreamResponse:
    """Fetch the file: a redirect to an address that is good for five minutes.

    It takes ranges, so that what broke off can be taken up again. Whoever sends an `If-Range` that is not the file's
    `ETag` is answered with the whole file, as its pieces would not fit what is there already.
    """
    return await _deliver(call, await _own(call, path.task_id))


@routes.head("/v1/downloads/{task_id}/file", access=Access.PROJECT, media_type=OCTETS, problems=NO_FILE)
async def file_head(call: Call, path: TaskPath) -> web.Response:
    """Tell name, type and length of the file, without the file.

    There is no redirect: the address that one leads to is good for reading alone.
    """
    return _head(await _own(call, path.task_id))


@routes.post("/v1/downloads/{task_id}/link", access=Access.PROJECT, status=HTTPStatus.CREATED, problems=NO_FILE)
async def link(call: Call, path: TaskPath, query: LinkQuery) -> MadeLink:
    """Make a link that needs no key, for browsers.

    It leads to the file until it expires or the file goes.
    """
    found = await _own(call, path.task_id)
    until = min(datetime.now(UTC) + timedelta(seconds=query.expires_in), found.expires_at).replace(microsecond=0)
    token = links.write(_pepper(call), Link(call.project_id, path.task_id, until))
    base = call.services.settings.api.public_base.rstrip("/") or f"{call.request.scheme}://{call.request.host}"
    return MadeLink(url=f"{base}/d/{token}", expires_at=until)


@routes.get("/d/{token}", access=Access.PUBLIC, status=HTTPStatus.FOUND, problems={**NO_FILE, "link_expired": Gone})
async def follow(call: Call, path: LinkPath) -> web.StreamResponse:
    """Follow a link: a redirect to an address that is good for five minutes."""
    return await _deliver(call, await _linked(call, path.token))


@routes.head("/d/{token}", access=Access.PUBLIC, media_type=OCTETS, problems={**NO_FILE, "link_expired": Gone})
async def follow_head(call: Call, path: LinkPath) -> web.Response:
    """Tell name, type and length of the file that a link leads to."""
    return _head(await _linked(call, path.token))


async def stream(call: Call, task_id: str) -> web.StreamResponse:
    """Send the file of a download itself, and say where the download is."""
    return await _send(call, await _own(call, task_id), {"Content-Location": f"/v1/downloads/{task_id}"})


async def _deliver(call: Call, found: File) -> web.StreamResponse:
    """Redirect to the file; send it whole where the caller wants a piece of another one.

    Not every store heeds `If-Range`, and the redirect cannot take the caller's `Range` away.
    """
    headers, etag = call.request.headers, _etag(found)
    if hdrs.RANGE in headers and headers.get(hdrs.IF_RANGE, etag) != etag:
        call.lift_time_limit()
        return await _send(call, found)
    return await _redirect(call, found)


async def _send(call: Call, found: File, more: Mapping[str, str] = MappingProxyType({})) -> web.StreamResponse:
    """Send a file itself, in flat memory."""
    response = web.StreamResponse(headers={**_headers(found), **more})
    await response.prepare(call.request)
    async for piece in call.services.objects.stream(found.stored.key):
        async with asyncio.timeout(SEND_SECONDS):
            await response.write(piece)
    return response


def file_of(row: Download) -> File:
    """The file of a download.

    Raises:
        Conflict: It has none yet, or never will.
        Gone: Its time is over.
    """
    answer = answers.of_row(row)
    match answer.state:
        case State.PENDING | State.RUNNING:
            raise _unfinished()
        case State.FAILED:
            why = answer.fault or FaultRecord(code="", message="")
            raise Conflict("download_failed", f"This download failed, so there is no file. {why.message}", why.hint)
        case State.CANCELLED:
            raise Conflict("download_cancelled", "This download was cancelled, so there is no file.", "Start another.")
        case State.EXPIRED:
            until = f" It was kept until {_clock(answer.expires_at)}." if answer.expires_at else ""
            raise Gone("download_expired", f"The file is gone.{until}", "Export again.")
        case State.SUCCEEDED:
            if row.file is None or row.expires_at is None:
                raise LookupError(f"{row.task_id} succeeded, and its row names no file")
            file = StoredFile.model_validate(row.file)
            return File(file, file.content_type or _content_type(row), row.expires_at)
        case _:
            assert_never(answer.state)


async def _own(call: Call, task_id: str) -> File:
    row = await board(call).row(call.project_id, task_id)
    if row is None:
        # It may have begun a moment ago, or there is no such download.
        await board(call).read(call.project_id, task_id)
        raise _unfinished()
    return file_of(row)


async def _linked(call: Call, token: str) -> File:
    """The file that a link opens."""
    opened = links.read(_pepper(call), token)
    if opened is None:
        raise Missing("not_found", "This link is none of ours, or a character of it was lost.", "Ask for a new one.")
    if opened.expires_at <= datetime.now(UTC):
        raise Gone("link_expired", f"This link was good until {_clock(opened.expires_at)}.", "Ask for a new one.")
    row = await searching.find_of_live_project(call.services.database, opened.project_id, opened.task_id)
    if row is None:
        raise missing(opened.task_id)
    return file_of(row)


def _head(found: File) -> web.Response:
    """What the store says of the file to who reads it."""
    return web.Response(headers={**_headers(found), "Accept-Ranges": "bytes"})


def _headers(found: File) -> dict[str, str]:
    return {
        "Content-Disposition": content_disposition(found.stored.name),
        "Content-Length": str(found.stored.bytes),
        "Content-Type": found.content_type,
        "ETag": _etag(found),
    }


def _etag(found: File) -> str:
    return f'"{found.stored.etag}"'


async def _redirect(call: Call, found: File) -> web.Response:
    address = await call.services.objects.presign(
        found.stored.key,
        expires_seconds=PRESIGNED_SECONDS,
        file_name=found.stored.name,
        content_type=found.content_type,
    )
    return web.Response(status=HTTPStatus.FOUND, headers={"Location": address})


def _unfinished() -> Conflict:
    return Conflict("download_unfinished", "This download is not finished.", "Wait until its state is succeeded.")


def _content_type(row: Download) -> str:
    """Of a file whose record does not tell it."""
    order = DownloadOrder.model_validate(row.request)
    return csv.content_type_of(order.encoding) if order.type is FileType.CSV else PARQUET_TYPE


def _pepper(call: Call) -> str:
    return call.services.settings.secrets.pepper.get_secret_value()


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
