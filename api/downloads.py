"""Downloads at the door: start one, ask how it is, fetch the file."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from aiohttp import web
from pydantic import Field
from sqlmodel import select
from temporalio.client import WorkflowExecutionDescription
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from api.models import Answer, Request
from api.routes import Access, Call, Routes
from domain.downloads import csv
from domain.downloads.request import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    DownloadOrder,
    FileType,
    clean_file_name,
)
from domain.downloads.status import FetchProgress, Phase, State, Status, StoredFile
from domain.faults import Conflict, FaultRecord, Gone, Invalid, Missing
from infra import temporal
from infra.tables.downloads import Download
from workflows import downloads

LINK_SECONDS = 300

routes = Routes("downloads", "A paged source becomes a file.")


class NewDownload(Request):
    """What to export."""

    source_url: str = Field(
        min_length=1, max_length=4_000, description="asked as it is, with `page` (from 0) and `page_size` added"
    )
    type: FileType = FileType.CSV
    file_name: str | None = Field(default=None, max_length=200, description="by default date, time and random letters")
    operator_id: str | None = Field(default=None, max_length=64, description="who asked for it, on your side")
    page_size: int = Field(default=PAGE_SIZE_DEFAULT, ge=PAGE_SIZE_MIN, le=PAGE_SIZE_MAX)


class TaskPath(Request):
    """Names one download."""

    task_id: str = Field(pattern=r"^dl_[0-9a-z]{24}$")


class DownloadAnswer(Answer):
    """Where a download stands."""

    task_id: str
    state: State
    phase: Phase
    rows: int = Field(description="rows fetched so far")
    total: int | None = Field(description="rows that the source said there are; null until it was asked")
    fetchers: int | None = Field(default=None, description="how many fetch in parallel; null once it is over")
    file_name: str
    bytes: int | None = None
    fault: FaultRecord | None = Field(default=None, description="why it failed, and what to do")
    created_at: datetime
    finished_at: datetime | None = None
    expires_at: datetime | None = Field(default=None, description="when the file goes")


@routes.post("/v1/downloads", access=Access.PROJECT, status=202, problems={"url_invalid": Invalid})
async def create(call: Call, body: NewDownload) -> DownloadAnswer:
    """Start a download.

    The answer comes at once; ask `GET /v1/downloads/{task_id}` how it goes.
    """
    call.services.http.check(body.source_url)
    now = datetime.now(UTC)
    order = DownloadOrder(
        task_id=f"dl_{secrets.token_hex(12)}",
        project_id=call.project_id,
        source_url=call.services.sealer.seal(body.source_url),
        file_name=clean_file_name(body.file_name or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", body.type),
        type=body.type,
        operator_id=body.operator_id,
        page_size=body.page_size,
    )
    await _start(call, order)
    return _answer(order.task_id, order.file_name, now, Status())


@routes.get("/v1/downloads/{task_id}", access=Access.PROJECT)
async def read(call: Call, path: TaskPath) -> DownloadAnswer:
    """How a download goes.

    While it runs, the figures come from the running workflow and its fetchers.
    """
    row = await _row(call, path.task_id)
    if row is not None and State(row.state).final:
        return _final(row)
    description = await _describe(call, path.task_id)
    file_name = await description.memo_value(downloads.NAME_MEMO, type_hint=str)
    return _answer(path.task_id, file_name, description.start_time, await _status(call, description))


@routes.get(
    "/v1/downloads/{task_id}/file",
    access=Access.PROJECT,
    status=302,
    problems={"download_unfinished": Conflict, "download_failed": Conflict, "download_expired": Gone},
)
async def file(call: Call, path: TaskPath) -> web.Response:
    """The file: a redirect to a link that is good for five minutes."""
    row = await _row(call, path.task_id)
    if row is None or not State(row.state).final:
        await _describe(call, path.task_id)
        raise Conflict("download_unfinished", "This download is not finished.", "Wait until its state is succeeded.")
    if row.fault is not None or row.file is None:
        why = FaultRecord.model_validate(row.fault).sentence if row.fault else ""
        raise Conflict("download_failed", f"This download failed, so there is no file. {why}".rstrip(), "")
    if row.expires_at is not None and row.expires_at < datetime.now(UTC):
        raise Gone("download_expired", f"The file was kept until {row.expires_at:%Y-%m-%d %H:%M} UTC.", "Export again.")
    stored = StoredFile.model_validate(row.file)
    link = await call.services.objects.presign(
        stored.key, expires_seconds=LINK_SECONDS, file_name=stored.name, content_type=csv.CONTENT_TYPE
    )
    return web.Response(status=302, headers={"Location": link, "Cache-Control": "no-store"})


async def _start(call: Call, order: DownloadOrder) -> None:
    attributes = [
        SearchAttributePair(temporal.ROOM, routes.tag),
        SearchAttributePair(temporal.PROJECT, order.project_id),
        SearchAttributePair(temporal.STATE, State.PENDING),
    ]
    await call.services.engine.start_workflow(
        downloads.DownloadWorkflow.run,
        order,
        id=downloads.workflow_id(order.project_id, order.task_id),
        task_queue=downloads.QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        task_timeout=timedelta(seconds=call.services.settings.engine.task_timeout_seconds),
        search_attributes=TypedSearchAttributes(attributes),
        memo={downloads.NAME_MEMO: order.file_name, downloads.STATUS_MEMO: Status()},
        static_summary=f"export to {order.file_name}",
    )


async def _row(call: Call, task_id: str) -> Download | None:
    async with call.services.database.session() as session:
        query = select(Download).where(Download.task_id == task_id, Download.project_id == call.project_id)
        return (await session.exec(query)).one_or_none()


async def _describe(call: Call, task_id: str) -> WorkflowExecutionDescription:
    """What the engine knows of it; the project in the id keeps strangers out."""
    handle = call.services.engine.get_workflow_handle(downloads.workflow_id(call.project_id, task_id))
    try:
        return await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise Missing(
            "not_found", f"There is no download {task_id}.", "Check the id that POST /v1/downloads answered."
        ) from None


async def _status(call: Call, description: WorkflowExecutionDescription) -> Status:
    """The workflow's own word, and on top the rows that running fetchers reported."""
    status = await description.memo_value(downloads.STATUS_MEMO, type_hint=Status)
    running: Sequence[FetchProgress] = await temporal.heartbeats(call.services.engine, description, FetchProgress)
    return status.model_copy(update={"rows": status.rows + sum(progress.rows for progress in running)})


def _answer(task_id: str, file_name: str, created_at: datetime, status: Status) -> DownloadAnswer:
    return DownloadAnswer(task_id=task_id, file_name=file_name, created_at=created_at, **status.model_dump())


def _final(row: Download) -> DownloadAnswer:
    return DownloadAnswer(
        task_id=row.task_id,
        state=State(row.state),
        phase=Phase.DONE,
        rows=row.rows or 0,
        total=row.total_rows,
        file_name=row.file_name,
        bytes=row.bytes,
        fault=FaultRecord.model_validate(row.fault) if row.fault else None,
        created_at=row.created_at,
        finished_at=row.finished_at,
        expires_at=row.expires_at,
    )
