"""POST /v1/downloads: check, seal, start; and, for who asks for it, wait for the file."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field

from api.downloads import answers, delivery, idempotency, inline, quotas, starting, tables
from api.downloads.answers import DownloadAnswer
from api.downloads.requests import NewDownload
from api.downloads.room import board, routes, watches
from api.downloads.tables import Table
from api.http import auth
from api.http.models import Request
from api.http.routes import Access, Call
from domain.downloads import names
from domain.downloads.models import DownloadOrder, FileType, State, Status, TableSource, clean_file_name
from domain.faults import Exhausted, Invalid, Missing, SourceFault
from stores.downloads.quotas import release_active

WAIT_MAX_SECONDS = 60

EXTENSIONS = {FileType.CSV: "csv", FileType.PARQUET: "parquet", FileType.EXCEL: "xlsx"}


class Patience(Request):
    """How long the caller waits for the file."""

    wait: int = Field(
        default=0, ge=0, le=WAIT_MAX_SECONDS, description="seconds; the answer is the file if it is ready in time"
    )


IdempotencyKey = Annotated[
    str, AfterValidator(idempotency.checked), Field(json_schema_extra={"pattern": idempotency.KEY_PATTERN})
]


class Once(Request):
    """What makes a request safe to send again."""

    idempotency_key: IdempotencyKey | None = Field(
        default=None,
        alias=idempotency.HEADER,
        description="the same key and body are the same download, however often they are sent",
    )


@routes.post(
    "/v1/downloads",
    access=Access.PROJECT,
    status=HTTPStatus.ACCEPTED,
    also={HTTPStatus.OK: "*/*"},
    problems={
        "invalid_url": Invalid,
        "address_denied": Invalid,
        "idempotency_key_reused": Invalid,
        "not_found": Missing,
        "download_failed": SourceFault,
        quotas.CODE: Exhausted,
    },
)
async def create(call: Call, body: NewDownload, query: Patience, headers: Once) -> DownloadAnswer | web.StreamResponse:
    """Start a download.

    The answer comes at once: ask `GET /v1/downloads/{task_id}` how it goes, or watch it. With `wait` the answer is the
    file itself if it is ready in time; one that fails in time is told as the problem `download_failed`. A request that
    is sent again with its `Idempotency-Key` gets the download that is there, and costs no quota.
    """
    asked = _checked(call, body)
    answer = await _found_or_started(call, body, asked, headers.idempotency_key)
    _tell(call, "Location", f"/v1/downloads/{answer.task_id}")
    return await _waited(call, answer, query.wait) if query.wait else answer


def _checked(call: Call, body: NewDownload) -> list[Table]:
    if body.project_id not in (None, call.project_id):
        raise auth.build_not_found()
    asked = tables.of(body)
    for url in dict.fromkeys([*(table.source_url for table in asked), body.callback]):
        if url is not None:
            call.services.http.check(url)
    return asked


async def _found_or_started(call: Call, body: NewDownload, asked: list[Table], key: str | None) -> DownloadAnswer:
    task_id = f"dl_{secrets.token_hex(12)}"
    if key is None:
        return await _started(call, body, asked, task_id)
    has_rows = any(table.data is not None for table in asked)
    rows = b"\n".join(inline.texts(call, body)) if has_rows else b""
    fingerprint = idempotency.fingerprint(body, rows)
    owner = await idempotency.claim(call.services.database, call.project_id, key, fingerprint, task_id)
    if owner != task_id:
        # The first request may have got no further than its claim: then this one starts the download.
        with suppress(Missing):
            return await _replayed(call, owner)
    return await _started(call, body, asked, owner)


async def _replayed(call: Call, task_id: str) -> DownloadAnswer:
    answer = await board(call).read(call.project_id, task_id)
    _tell(call, "Idempotency-Replayed", "true")
    return answer


async def _started(call: Call, body: NewDownload, asked: list[Table], task_id: str) -> DownloadAnswer:
    sources = [_source(call, table, task_id, index) for index, table in enumerate(asked)]
    order = _order(call, body, asked, sources, task_id)
    await quotas.admit(call, order)
    try:
        if any(source.inline_key for source in sources):
            await inline.put(call, body, asked, [source.inline_key for source in sources])
        if not await starting.start(call.services, order):
            return await _replayed(call, task_id)
    except Exception:
        await release_active(call.services.database, order.project_id, order.operator_id, task_id)
        raise
    return answers.of_run(
        order.project_id, task_id, answers.asked(order), Status(), order.created_at or datetime.now(UTC)
    )


def _tell(call: Call, header: str, value: str) -> None:
    call.request_state.headers[header] = value


def _source(call: Call, table: Table, task_id: str, index: int) -> TableSource:
    seal = call.services.sealer.seal
    return TableSource(
        source_url=seal(table.source_url) if table.source_url else None,
        source_headers=seal(json.dumps(table.headers)) if table.headers else None,
        inline_key=names.inline(call.project_id, task_id, index) if table.data is not None else None,
    )


def _order(
    call: Call, body: NewDownload, asked: list[Table], sources: list[TableSource], task_id: str
) -> DownloadOrder:
    seal, settings, now = call.services.sealer.seal, call.services.settings.downloads, datetime.now(UTC)
    name = body.file_name or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return DownloadOrder(
        task_id=task_id,
        project_id=call.project_id,
        file_name=clean_file_name(name, EXTENSIONS[body.type]),
        created_at=now,
        source_url=sources[0].source_url if len(sources) == 1 else None,
        source_headers=sources[0].source_headers if len(sources) == 1 else None,
        inline_key=sources[0].inline_key if len(sources) == 1 else None,
        tables=sources if len(sources) > 1 else [],
        type=body.type,
        operator_id=body.operator_id,
        page_size=body.page_size,
        callback=seal(body.callback) if body.callback else None,
        public_base=call.services.settings.api.public_base,
        encoding=body.encoding,
        columns=body.columns,
        force_continue=body.force_continue,
        first_page=body.first_page,
        allow_repeats=body.allow_repeats,
        guard_formulas=body.formula_guard,
        time_zone=body.time_zone,
        drawing=tables.drawing(body, asked) if body.type is FileType.EXCEL else None,
        file_max_bytes=settings.excel_file_max_bytes,
        file_max_rows=settings.excel_file_max_rows,
        expires_in_seconds=body.expires_in,
        max_exec_seconds=body.max_exec_time,
        max_task_retries=settings.max_task_retries,
        slice_seconds=settings.slice_seconds,
        rerun_pause_seconds=settings.rerun_pause_seconds,
        resume_window_seconds=settings.resume_window_seconds,
    )


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
