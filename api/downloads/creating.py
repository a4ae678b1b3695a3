"""POST /v1/downloads: check, seal, start; and, for who asks for it, wait for the file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec
from aiohttp import web
from pydantic import Field

from api import auth
from api.downloads import answers, delivery, starting
from api.downloads.answers import Asked, DownloadAnswer
from api.downloads.requests import NewDownload
from api.downloads.room import routes, watches
from api.models import Request
from api.routes import Access, Call
from domain.downloads.request import DownloadOrder, clean_file_name
from domain.downloads.status import State, Status
from domain.faults import Invalid, SourceFault

WAIT_MAX_SECONDS = 60


class Patience(Request):
    """How long the caller waits for the file."""

    wait: int = Field(
        default=0, ge=0, le=WAIT_MAX_SECONDS, description="seconds; the answer is the file if it is ready in time"
    )


class Once(Request):
    """What makes a request safe to send again."""

    idempotency_key: str | None = Field(
        default=None,
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="the same key and body are the same download, however often they are sent",
    )


class _Inline(msgspec.Struct):
    data: msgspec.Raw


@routes.post(
    "/v1/downloads",
    access=Access.PROJECT,
    status=HTTPStatus.ACCEPTED,
    also={HTTPStatus.OK: "*/*"},
    problems={
        "invalid_url": Invalid,
        "address_denied": Invalid,
        "idempotency_key_reused": Invalid,
        "not_found": auth.not_here().__class__,
        "download_failed": SourceFault,
    },
)
async def create(call: Call, body: NewDownload, query: Patience, headers: Once) -> DownloadAnswer | web.StreamResponse:
    """Start a download.

    The answer comes at once: ask `GET /v1/downloads/{task_id}` how it goes, or watch it. With `wait` the answer is the
    file itself if it is ready in time; one that fails in time is told as the problem `download_failed`.
    """
    if body.project_id not in (None, call.project_id):
        raise auth.not_here()
    for url in (body.source_url, body.callback):
        if url is not None:
            call.services.http.check(url)
    order = _order(call, body)
    if order.inline_key is not None:
        await _put_rows(call, order.inline_key, len(body.data or ()))
    await starting.start(call.services, order)
    asked = Asked(type=order.type, file_name=order.file_name, operator_id=order.operator_id)
    answer = answers.of_run(order.task_id, asked, Status(), datetime.now(UTC))
    return await _waited(call, answer, query.wait) if query.wait else answer


def _order(call: Call, body: NewDownload) -> DownloadOrder:
    task_id, seal = f"dl_{secrets.token_hex(12)}", call.services.sealer.seal
    name = body.file_name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return DownloadOrder(
        task_id=task_id,
        project_id=call.project_id,
        file_name=clean_file_name(name, body.type),
        source_url=seal(body.source_url) if body.source_url else None,
        source_headers=seal(json.dumps(body.headers)) if body.headers else None,
        inline_key=f"inline/{call.project_id}/{task_id}.json" if body.data is not None else None,
        type=body.type,
        operator_id=body.operator_id,
        page_size=body.page_size,
        callback=seal(body.callback) if body.callback else None,
        encoding=body.encoding,
        columns=body.columns,
        force_continue=body.force_continue,
        guard_formulas=body.formula_guard,
        time_zone=body.time_zone,
        title=body.title,
        summary=body.summary,
        template=body.template,
        expires_in_seconds=body.expires_in,
        max_exec_seconds=body.max_exec_time,
    )


async def _put_rows(call: Call, key: str, count: int) -> None:
    """Lay the rows down as a source would answer them, in the caller's own spelling: no number loses a digit."""
    sent = msgspec.json.decode(await call.request.read(), type=_Inline)
    page = b'{"total":%d,"data":%b}' % (count, bytes(sent.data))
    await call.services.objects.put(key, page, content_type="application/json")


def fingerprint(body: NewDownload) -> bytes:
    """What tells two requests with the same key apart: all that they ask for, whatever its spelling."""
    return hashlib.sha256(json.dumps(body.model_dump(mode="json"), sort_keys=True).encode()).digest()


async def _waited(call: Call, answer: DownloadAnswer, seconds: int) -> DownloadAnswer | web.StreamResponse:
    """The file, if it is there in time; else where the download stands."""
    call.lift_time_limit()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), watches(call).of_download(call.project_id, answer.task_id) as watcher:
            while (news := await watcher.news()) is not None:
                answer = news[-1] if news else answer
    match answer.state:
        case State.SUCCEEDED:
            return await delivery.stream(call, answer.task_id)
        case State.FAILED if answer.fault is not None:
            raise SourceFault("download_failed", f"The download failed. {answer.fault.message}", answer.fault.hint)
        case _:
            return answer
