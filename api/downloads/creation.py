"""POST /v1/downloads: validate, seal and start; with `wait`, also wait for the file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any

from aiohttp import web
from pydantic import AfterValidator, BaseModel, Field

from api.downloads import files, quotas, responses, tables
from api.downloads.context import get_status_reader, get_watch_registry, routes
from api.downloads.requests import DownloadRequest
from api.downloads.responses import DownloadResponse
from api.downloads.tables import RequestedTable
from api.http import auth
from api.http.models import Request
from api.http.routes import Call, RouteAccess
from api.pauses import SYSTEM_PAUSED
from domain.downloads import names
from domain.downloads.models import DownloadSpec, DownloadState, DownloadStatus, FileType, TableSource, clean_file_name
from domain.egress import parse_url
from domain.faults import Invalid, Missing, Paused, SourceFault
from infra import log, metrics
from infra.database import DATABASE_ERRORS, Database
from services.services import Services
from stores import projects
from stores.downloads import catalogue
from stores.projects import IdempotencyClaim
from workflows.downloads import handle

WAIT_MAX_SECONDS = 60

EXTENSIONS = {FileType.CSV: "csv", FileType.PARQUET: "parquet", FileType.EXCEL: "xlsx"}
KEY_HEADER = "Idempotency-Key"
KEY_FORM = "1 to 255 visible ASCII characters, without spaces"
KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
ROW_FIELDS: Mapping[str, Any] = {"data": True, "sheets": {"__all__": {"data"}}}
ORDERED_FIELDS = ("template", "header", "footer", "sheets")
"""In these fields, the order of keys is the order of columns or cells."""

_log = log.get(__name__)


def validate_idempotency_key(key: str) -> str:
    """Validate the form of an idempotency key."""
    if re.fullmatch(KEY_PATTERN, key) is None:
        raise ValueError(f"it has another form; send {KEY_FORM}.")
    return key


class FileWaitQuery(Request):
    """How long the request waits for the file."""

    wait: int = Field(
        default=0, ge=0, le=WAIT_MAX_SECONDS, description="seconds; the answer is the file if it is ready in time"
    )


IdempotencyKey = Annotated[
    str, AfterValidator(validate_idempotency_key), Field(json_schema_extra={"pattern": KEY_PATTERN})
]


class IdempotencyHeaders(Request):
    """The header that makes a request safe to repeat."""

    idempotency_key: IdempotencyKey | None = Field(
        default=None,
        alias=KEY_HEADER,
        description="the same key and body are the same download, however often they are sent",
    )


@routes.post(
    "/v1/downloads",
    access=RouteAccess.PROJECT,
    is_audited=False,
    begins_work=True,
    status=HTTPStatus.ACCEPTED,
    also={HTTPStatus.OK: "*/*"},
    problems={
        SYSTEM_PAUSED: Paused,
        "invalid_url": Invalid,
        "address_denied": Invalid,
        "idempotency_key_reused": Invalid,
        "not_found": Missing,
        "download_failed": SourceFault,
    },
)
async def create_download(
    call: Call, body: DownloadRequest, query: FileWaitQuery, headers: IdempotencyHeaders
) -> DownloadResponse | web.StreamResponse:
    """Start a download.

    The response comes at once: query `GET /v1/downloads/{task_id}` for its progress, or watch it. With `wait` the
    response is the file itself if it is ready in time; a download that fails in time is answered by the problem
    `download_failed`. A request that is repeated with its `Idempotency-Key` returns the existing download and costs no
    quota.
    """
    requested = _parse_and_check_tables(call, body)
    answer = await _find_by_idempotency_key_or_start(call, body, requested, headers.idempotency_key)
    _set_response_header(call, "Location", f"/v1/downloads/{answer.task_id}")
    return await _wait_for_file_or_return_state(call, answer, query.wait) if query.wait else answer


def _parse_and_check_tables(call: Call, body: DownloadRequest) -> list[RequestedTable]:
    if body.project_id not in (None, call.project_id):
        raise auth.build_missing_to_caller_fault()
    requested = tables.build_tables_or_reject_request(body)
    for url in dict.fromkeys(table.source_url for table in requested):
        if url is not None:
            call.services.http.require_url_allowed_before_lookup(url, is_source=True)
    if body.callback is not None:
        call.services.http.require_url_allowed_before_lookup(body.callback)
    return requested


async def _find_by_idempotency_key_or_start(
    call: Call, body: DownloadRequest, requested: list[RequestedTable], key: str | None
) -> DownloadResponse:
    task_id = f"dl_{secrets.token_hex(12)}"
    if key is None:
        return await _consume_quotas_and_start(call, body, requested, task_id)
    has_rows = any(table.data is not None for table in requested)
    rows = b"\n".join(tables.extract_rows_json_by_table(call, body)) if has_rows else b""
    fingerprint = fingerprint_request(body, rows)
    owner = await claim_idempotency_key(call.services.database, call.project_id, key, fingerprint, task_id)
    if owner != task_id:
        # The first request may have ended right after its claim; then this one starts the download.
        with suppress(Missing):
            return await _answer_with_existing_download(call, owner)
    return await _consume_quotas_and_start(call, body, requested, owner)


async def _answer_with_existing_download(call: Call, task_id: str) -> DownloadResponse:
    answer = await get_status_reader(call).read_status(call.project_id, task_id)
    _set_response_header(call, "Idempotency-Replayed", "true")
    return answer


async def _consume_quotas_and_start(
    call: Call, body: DownloadRequest, requested: list[RequestedTable], task_id: str
) -> DownloadResponse:
    sources = [_seal_source(call, table, task_id, index) for index, table in enumerate(requested)]
    spec = _build_spec(call, body, requested, sources, task_id)
    async with quotas.consume_quotas_for_start(call, spec):
        if any(source.inline_key for source in sources):
            await tables.store_inline_rows_as_source_pages(
                call, body, requested, [source.inline_key for source in sources]
            )
        is_new = await start_download(call.services, spec)
    if not is_new:
        return await _answer_with_existing_download(call, task_id)
    await _insert_pending_row_or_log_warning(call.services.database, spec)
    metrics.DOWNLOADS_ACCEPTED.labels(spec.type).inc()
    return responses.build_response_from_run(
        spec.project_id, task_id, responses.build_memo(spec), DownloadStatus(), spec.created_at or datetime.now(UTC)
    )


async def _insert_pending_row_or_log_warning(database: Database, spec: DownloadSpec) -> None:
    """Write the row that lists are read from. The download runs in any case: if this fails, a worker writes the row."""
    try:
        await catalogue.insert_accepted_download_if_new(database, spec)
    except DATABASE_ERRORS as error:
        _log.warning("download_not_listed", task_id=spec.task_id, error=str(error))


def _set_response_header(call: Call, header: str, value: str) -> None:
    call.request_state.headers[header] = value


def _seal_source(call: Call, table: RequestedTable, task_id: str, index: int) -> TableSource:
    seal = call.services.sealer.seal
    return TableSource(
        source_url=seal(table.source_url) if table.source_url else None,
        source_headers=seal(json.dumps(table.headers)) if table.headers else None,
        inline_key=names.build_inline_rows_key(call.project_id, task_id, index) if table.data is not None else None,
    )


def _build_spec(
    call: Call, body: DownloadRequest, requested: list[RequestedTable], sources: list[TableSource], task_id: str
) -> DownloadSpec:
    seal, settings, now = call.services.sealer.seal, call.services.settings.downloads, datetime.now(UTC)
    name = body.file_name or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return DownloadSpec(
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
        source_hosts=list(dict.fromkeys(str(parse_url(each.source_url).host) for each in requested if each.source_url)),
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
        drawing=tables.build_drawing(body, requested) if body.type is FileType.EXCEL else None,
        file_max_bytes=settings.excel_file_max_bytes,
        file_max_rows=settings.excel_file_max_rows,
        expires_in_seconds=body.expires_in,
        max_exec_seconds=body.max_exec_time,
        max_task_retries=settings.max_task_retries,
        slice_seconds=settings.slice_seconds,
        rerun_pause_seconds=settings.rerun_pause_seconds,
        resume_window_seconds=settings.resume_window_seconds,
    )


async def _wait_for_file_or_return_state(
    call: Call, answer: DownloadResponse, seconds: int
) -> DownloadResponse | web.StreamResponse:
    """Return the file if it is ready in time, else the current state."""
    call.remove_time_limit()
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(seconds),
            get_watch_registry(call).watch_download(call.project_id, answer.task_id) as subscription,
        ):
            while (updates := await subscription.wait_for_updates()) is not None:
                answer = updates[-1] if updates else answer
    match answer.state:
        case DownloadState.SUCCEEDED:
            return await files.stream_file(call, answer.task_id)
        case DownloadState.FAILED if answer.fault is not None:
            raise SourceFault("download_failed", f"The download failed. {answer.fault.message}", answer.fault.hint)
        case _:
            return answer


async def start_download(services: Services, spec: DownloadSpec, *, allow_restart: bool = False) -> bool:
    """Start the workflow of a download; return False if it is running already.

    Args:
        services: The clients of this process.
        spec: What to export.
        allow_restart: Whether an earlier run may have ended.
    """
    task_timeout = timedelta(seconds=services.settings.engine.task_timeout_seconds)
    return await handle.start_download(
        services.engine, spec, responses.build_memo(spec), task_timeout, allow_restart=allow_restart
    )


def fingerprint_request(body: BaseModel, rows: bytes = b"") -> bytes:
    """Return a digest that distinguishes requests with the same key by what they ask for, not by their spelling.

    Fields that are left out equal their defaults, so that a key survives new fields.

    Args:
        body: The request.
        rows: The rows that were sent along, as text: parsing would lose digits and the order of keys.
    """
    requested = body.model_dump(mode="json", exclude_defaults=True, exclude=ROW_FIELDS)
    ordered = {field: requested.pop(field) for field in ORDERED_FIELDS if field in requested}
    text = json.dumps(requested, sort_keys=True, separators=(",", ":")) + (json.dumps(ordered) if ordered else "")
    return hashlib.sha256(text.encode() + rows).digest()


async def claim_idempotency_key(database: Database, project_id: str, key: str, fingerprint: bytes, task_id: str) -> str:
    """Claim a key for a download; return the download that the key was first sent for.

    Raises:
        Invalid: It was first sent with another body.
    """
    owner = await projects.claim_idempotency_key(database, project_id, key, IdempotencyClaim(fingerprint, task_id))
    if owner.fingerprint != fingerprint:
        raise Invalid(
            "idempotency_key_reused",
            f"The {KEY_HEADER} {key} was sent before with another body.",
            "Send a new key for a new download, or the same body to get the old one.",
        )
    return owner.task_id
