"""Files: each way to one ends in a presigned address of five minutes, made when it is asked for; links need no key."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import assert_never

from aiohttp import hdrs, web
from pydantic import AwareDatetime, Field

from api.downloads import responses
from api.downloads.context import DownloadPath, get_status_reader, routes
from api.downloads.responses import build_missing_download_fault
from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess
from domain.downloads.models import DownloadSpec, DownloadState, FileType, StoredFile
from domain.downloads.sinks import csv
from domain.faults import Conflict, Fault, FaultRecord, Gone, Missing
from infra.objects import build_content_disposition
from stores.downloads import catalogue
from stores.tables.downloads import Download

PRESIGNED_SECONDS = 300
LINK_MIN_SECONDS = 60
LINK_DEFAULT_SECONDS = 24 * 3600
LINK_MAX_SECONDS = 7 * 24 * 3600
PARQUET_TYPE = "application/vnd.apache.parquet"
OCTETS = "application/octet-stream"
FILE_SEND_SECONDS = 30.0
"""How long a caller may take to read a piece of a file that the API itself sends."""

NO_FILE_PROBLEMS: dict[str, type[Fault]] = {
    "download_unfinished": Conflict,
    "download_failed": Conflict,
    "download_cancelled": Conflict,
    "download_expired": Gone,
}
LINK_PATTERN = r"^[0-9A-Za-z_-]{40,200}\.[0-9A-Za-z_-]{43}$"
_TEXT = re.compile(r"([0-9]{1,12}) (prj_[0-9A-Za-z]+) (dl_[0-9a-z]+)", re.ASCII)
_PURPOSE = b"haulage download link 1"


class LinkQuery(Request):
    """How long a link is valid."""

    expires_in: int = Field(
        default=LINK_DEFAULT_SECONDS,
        ge=LINK_MIN_SECONDS,
        le=LINK_MAX_SECONDS,
        description="seconds; it is never good for longer than the file is kept",
    )


class LinkResponse(Response):
    """A link that needs no key."""

    url: str = Field(description="anyone who has it can download the file")
    expires_at: AwareDatetime


class LinkPath(Request):
    """The token of a link."""

    token: str = Field(pattern=LINK_PATTERN)


@dataclass(frozen=True, slots=True)
class DownloadFile:
    """A file that can be downloaded."""

    stored: StoredFile
    content_type: str
    expires_at: datetime


@routes.get(
    "/v1/downloads/{task_id}/file", access=RouteAccess.PROJECT, status=HTTPStatus.FOUND, problems=NO_FILE_PROBLEMS
)
async def redirect_to_file(call: Call, path: DownloadPath) -> web.StreamResponse:
    """Download the file: a redirect to an address that is valid for five minutes, or until the file expires.

    It supports ranges, so that an interrupted download can be resumed. If `If-Range` is not the `ETag` of the file, the
    whole file is sent, as its ranges would not fit what was received before.
    """
    return await _redirect_unless_range_is_outdated(call, await _require_file_of_download(call, path.task_id))


@routes.head("/v1/downloads/{task_id}/file", access=RouteAccess.PROJECT, media_type=OCTETS, problems=NO_FILE_PROBLEMS)
async def read_file_headers(call: Call, path: DownloadPath) -> web.Response:
    """Return name, type and length of the file as headers.

    There is no redirect, as the address behind it only allows reading.
    """
    return _build_head_response(await _require_file_of_download(call, path.task_id))


@routes.post(
    "/v1/downloads/{task_id}/link", access=RouteAccess.PROJECT, status=HTTPStatus.CREATED, problems=NO_FILE_PROBLEMS
)
async def create_link(call: Call, path: DownloadPath, query: LinkQuery) -> LinkResponse:
    """Create a link that needs no key, for browsers.

    It leads to the file until the link or the file expires.
    """
    found = await _require_file_of_download(call, path.task_id)
    until = min(datetime.now(UTC) + timedelta(seconds=query.expires_in), found.expires_at).replace(microsecond=0)
    token = sign_link(_list_peppers(call)[0], FileLink(call.project_id, path.task_id, until))
    return LinkResponse(url=f"{call.public_base}/d/{token}", expires_at=until)


@routes.get(
    "/d/{token}",
    access=RouteAccess.PUBLIC,
    status=HTTPStatus.FOUND,
    problems={**NO_FILE_PROBLEMS, "link_expired": Gone},
)
async def follow_link(call: Call, path: LinkPath) -> web.StreamResponse:
    """Follow a link: a redirect to an address that is valid for five minutes, or until the file expires."""
    return await _redirect_unless_range_is_outdated(call, await _require_linked_file(call, path.token))


@routes.head(
    "/d/{token}", access=RouteAccess.PUBLIC, media_type=OCTETS, problems={**NO_FILE_PROBLEMS, "link_expired": Gone}
)
async def read_link_headers(call: Call, path: LinkPath) -> web.Response:
    """Return name, type and length of the linked file as headers."""
    return _build_head_response(await _require_linked_file(call, path.token))


async def stream_file(call: Call, task_id: str) -> web.StreamResponse:
    """Send the file of a download, and its address in `Content-Location`."""
    return await _send_whole_file(
        call, await _require_file_of_download(call, task_id), {"Content-Location": f"/v1/downloads/{task_id}"}
    )


async def _redirect_unless_range_is_outdated(call: Call, file: DownloadFile) -> web.StreamResponse:
    """Redirect to the file; send it whole if the caller wants a range of another version.

    Not every store honours `If-Range`, and a redirect cannot remove the `Range` of the caller.
    """
    headers, etag = call.request.headers, _quote_etag(file)
    if hdrs.RANGE in headers and headers.get(hdrs.IF_RANGE, etag) != etag:
        call.remove_time_limit()
        return await _send_whole_file(call, file)
    return await _redirect_to_store(call, file)


async def _send_whole_file(
    call: Call, file: DownloadFile, more: Mapping[str, str] = MappingProxyType({})
) -> web.StreamResponse:
    """Send a file in pieces, so that memory stays constant."""
    response = web.StreamResponse(headers={**_build_file_headers(file), **more})
    await response.prepare(call.request)
    async for piece in call.services.objects.stream(file.stored.key):
        async with asyncio.timeout(FILE_SEND_SECONDS):
            await response.write(piece)
    return response


def require_finished_file(row: Download) -> DownloadFile:
    """Return the file of a download.

    Raises:
        Conflict: It has none yet, or never will.
        Gone: It has expired.
    """
    answer = responses.build_response_from_row(row)
    match answer.state:
        case DownloadState.PENDING | DownloadState.RUNNING:
            raise _build_unfinished_conflict()
        case DownloadState.FAILED:
            why = answer.fault or FaultRecord(code="", message="")
            raise Conflict("download_failed", f"This download failed, so there is no file. {why.message}", why.hint)
        case DownloadState.CANCELLED:
            raise Conflict("download_cancelled", "This download was cancelled, so there is no file.", "Start another.")
        case DownloadState.EXPIRED:
            until = f" It was kept until {_format_time(answer.expires_at)}." if answer.expires_at else ""
            raise Gone("download_expired", f"The file is gone.{until}", "Export again.")
        case DownloadState.SUCCEEDED:
            if row.file is None or row.expires_at is None:
                raise LookupError(f"{row.task_id} succeeded, and its row names no file")
            file = StoredFile.model_validate(row.file)
            return DownloadFile(file, file.content_type or _infer_content_type(row), row.expires_at)
        case _:
            assert_never(answer.state)


async def _require_file_of_download(call: Call, task_id: str) -> DownloadFile:
    row = await get_status_reader(call).read_catalogue_row(call.project_id, task_id)
    if row is None:
        # Without a row it has not been processed yet, or there is no such download.
        await get_status_reader(call).read_status(call.project_id, task_id)
        raise _build_unfinished_conflict()
    return require_finished_file(row)


async def _require_linked_file(call: Call, token: str) -> DownloadFile:
    """Return the file that a link opens.

    Raises:
        Missing: The link is invalid, or its download is gone.
        Gone: The link has expired.
    """
    links = (parse_link_if_signature_matches(pepper, token) for pepper in _list_peppers(call))
    opened = next(filter(None, links), None)
    if opened is None:
        raise Missing("not_found", "This link is invalid, or a character of it was lost.", "Ask for a new one.")
    if opened.expires_at <= datetime.now(UTC):
        raise Gone("link_expired", f"This link was good until {_format_time(opened.expires_at)}.", "Ask for a new one.")
    row = await catalogue.find_download_of_live_project(call.services.database, opened.project_id, opened.task_id)
    if row is None:
        raise build_missing_download_fault(opened.task_id)
    return require_finished_file(row)


def _build_head_response(file: DownloadFile) -> web.Response:
    """Return the headers of the file, without a body."""
    return web.Response(headers={**_build_file_headers(file), "Accept-Ranges": "bytes"})


def _build_file_headers(file: DownloadFile) -> dict[str, str]:
    return {
        "Content-Disposition": build_content_disposition(file.stored.name),
        "Content-Length": str(file.stored.bytes),
        "Content-Type": file.content_type,
        "ETag": _quote_etag(file),
    }


def _quote_etag(file: DownloadFile) -> str:
    return f'"{file.stored.etag}"'


async def _redirect_to_store(call: Call, file: DownloadFile) -> web.Response:
    left = math.ceil((file.expires_at - datetime.now(UTC)).total_seconds())
    address = await call.services.objects.presign_download(
        file.stored.key,
        # Housekeeping removes an expired file only when it comes to it.
        expires_seconds=max(1, min(PRESIGNED_SECONDS, left)),
        file_name=file.stored.name,
        content_type=file.content_type,
    )
    return web.Response(status=HTTPStatus.FOUND, headers={"Location": address})


def _build_unfinished_conflict() -> Conflict:
    return Conflict("download_unfinished", "This download is not finished.", "Wait until its state is succeeded.")


def _infer_content_type(row: Download) -> str:
    """Infer the content type of a file whose record has none."""
    spec = DownloadSpec.model_validate(row.request)
    return csv.get_content_type(spec.encoding) if spec.type is FileType.CSV else PARQUET_TYPE


def _list_peppers(call: Call) -> list[str]:
    return call.services.settings.secrets.list_peppers()


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class FileLink:
    """The download that a link opens, and its expiry."""

    project_id: str
    task_id: str
    expires_at: datetime


def sign_link(pepper: str, link: FileLink) -> str:
    """Return the link as a signed token."""
    text = f"{int(link.expires_at.timestamp())} {link.project_id} {link.task_id}".encode()
    return f"{_encode_base64(text)}.{_encode_base64(_compute_signature(pepper, text))}"


def parse_link_if_signature_matches(pepper: str, token: str) -> FileLink | None:
    """Return the link of a token, or None if the signature is wrong. The caller checks the expiry."""
    body, _, signature = token.partition(".")
    try:
        text, signed = _decode_url_safe_base64(body), _decode_url_safe_base64(signature)
    except ValueError:
        return None
    if not hmac.compare_digest(signed, _compute_signature(pepper, text)):
        return None
    match = _TEXT.fullmatch(text.decode("ascii"))
    return FileLink(match[2], match[3], datetime.fromtimestamp(int(match[1]), UTC)) if match else None


def _compute_signature(pepper: str, text: bytes) -> bytes:
    key = hmac.digest(pepper.encode(), _PURPOSE, hashlib.sha256)
    return hmac.digest(key, text, hashlib.sha256)


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_url_safe_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
