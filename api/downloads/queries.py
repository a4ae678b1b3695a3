"""Queries: one download, lists of downloads, and the attempts of one."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, model_validator
from temporalio.client import Client
from temporalio.service import RPCError

from api.downloads import responses
from api.downloads.context import DownloadPath, get_status_reader, routes
from api.downloads.responses import DownloadResponse, DownloadSummary
from api.http import auth, pagination, validation
from api.http.models import Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from api.http.validation import QueryTimestamp
from domain.downloads import names
from domain.downloads.models import DownloadCause, DownloadState, FileType
from domain.downloads.retries import RetryWait
from domain.faults import FaultRecord, Invalid, Missing
from infra import history, outages
from infra.history import ActivityState
from stores.downloads import catalogue
from stores.downloads.catalogue import DownloadFilter

STEP_PREFIX = "download_"


def _lowercase_host_or_reject_url(host: str) -> str:
    """Return the host in lower case; raise ValueError for more than a host, which would match no download."""
    is_ipv6 = host.count(":") > 1
    if "/" in host or "[" in host or (":" in host and not is_ipv6):
        raise ValueError("it is more than a host; send it without scheme, port and path, like shop.example.com.")
    return host.lower()


class DownloadsQuery(PageQuery):
    """Filters of the list of downloads."""

    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    task_id: str | None = Field(default=None, max_length=64)
    state: DownloadState | None = None
    cause: DownloadCause | None = Field(default=None, description="the code of the fault")
    type: FileType | None = None
    operator_id: str | None = Field(default=None, max_length=64)
    source_host: (
        Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_lowercase_host_or_reject_url)] | None
    ) = Field(default=None, description="a host of its source URLs, without its port")
    file_name: str | None = Field(default=None, min_length=1, max_length=200, description="a part of it, in any case")
    created_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


@routes.get("/v1/downloads", access=RouteAccess.PROJECTS, problems={"cursor_invalid": Invalid, "not_found": Missing})
async def list_downloads(call: Call, query: DownloadsQuery) -> PageResponse[DownloadSummary]:
    """List downloads, newest first.

    A download is listed as soon as it is accepted. Query a running one by its id for its progress. The admin key lists
    the downloads of all projects if it names none.
    """
    if query.project_id is not None and call.project_filter not in (None, query.project_id):
        raise auth.build_missing_to_caller_fault()
    project_id = query.project_id or call.project_filter
    filters = DownloadFilter(
        project_id=project_id,
        task_id=query.task_id,
        state=query.state,
        cause=query.cause,
        type=query.type,
        operator_id=query.operator_id,
        source_host=query.source_host,
        file_name=query.file_name,
        created_after=query.created_after,
        created_before=query.created_before,
    )
    rows = await catalogue.list_download_page_plus_one(call.services.database, filters, query.after, query.limit)
    return pagination.build_page(
        rows, query.limit, responses.build_summary_from_row, lambda row: (row.created_at, row.task_id)
    )


@routes.get("/v1/downloads/{task_id}", access=RouteAccess.PROJECT)
async def read_download(call: Call, path: DownloadPath) -> DownloadResponse:
    """Return a download.

    While it runs, its figures come from its workflow and fetchers, and are at most half a second old.
    """
    return await get_status_reader(call).read_status(call.project_id, path.task_id)


class AttemptLimitQuery(Request):
    """How many steps to return."""

    limit: int = Field(default=50, ge=1, le=200, description="steps at most")


class ActivityWithAttemptCountResponse(Response):
    """One activity with all its attempts."""

    step: str = Field(examples=["probe", "fetch_range", "assemble", "render", "bind"])
    summary: str = Field(description="its subject, e.g. which pages; empty if the step has none")
    state: ActivityState = Field(
        description="`waiting` for a worker, or for its next attempt; `failed` also where the source refused a request "
        "or did not answer it, and the download repeats it after a pause"
    )
    attempts: int = Field(description="how often it was begun")
    scheduled_at: AwareDatetime
    ended_at: AwareDatetime | None
    next_attempt_at: AwareDatetime | None
    fault: FaultRecord | None = Field(description="why the last attempt that failed did")


class ActivityAttemptsResponse(Response):
    """The activities of the last run."""

    items: list[ActivityWithAttemptCountResponse] = Field(
        description="newest first; none once the engine has forgotten the run"
    )
    more: bool = Field(description="whether there were earlier ones")


@routes.get("/v1/downloads/{task_id}/attempts", access=RouteAccess.PROJECT)
async def list_activity_attempts(call: Call, path: DownloadPath, query: AttemptLimitQuery) -> ActivityAttemptsResponse:
    """List the activities of a download and their attempts.

    Newest first, from the last run: a late retry is a run of its own. Repeated page requests within an activity are not
    listed. The engine forgets a run days after its end.
    """
    await get_status_reader(call).read_status(call.project_id, path.task_id)
    handle = call.services.engine.get_workflow_handle(names.build_download_workflow_id(call.project_id, path.task_id))
    try:
        found, is_all = await history.list_newest_activities_and_completeness(
            call.services.engine, await handle.describe(), query.limit
        )
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        return ActivityAttemptsResponse(items=[], more=False)
    for step in found:
        await _mark_step_failed_if_result_asks_for_retry(call.services.engine, step)
    return ActivityAttemptsResponse(items=[_build_step_response(step) for step in found], more=not is_all)


class _ResultWithRetryWait(BaseModel):
    """What steps that read the source return where a request is to be repeated."""

    wait: RetryWait | None = None


_STEPS_OF_SOURCE: Final = (f"{STEP_PREFIX}probe", f"{STEP_PREFIX}fetch_range")


async def _mark_step_failed_if_result_asks_for_retry(engine: Client, step: history.ActivityWithAttemptCount) -> None:
    """Mark a step as failed that ended for the workflow to repeat its request later."""
    if step.activity not in _STEPS_OF_SOURCE or not step.result:
        return
    result = await history.decode_unless_key_missing(engine, step.result, _ResultWithRetryWait)
    wait = result.wait if result is not None else None
    if wait is not None and wait.tries.fault is not None:
        step.state, step.fault = history.ActivityState.FAILED, wait.tries.fault


def _build_step_response(step: history.ActivityWithAttemptCount) -> ActivityWithAttemptCountResponse:
    return ActivityWithAttemptCountResponse(
        step=step.activity.removeprefix(STEP_PREFIX),
        summary=step.summary,
        state=step.state,
        attempts=step.attempts,
        scheduled_at=step.scheduled_at,
        ended_at=step.ended_at,
        next_attempt_at=step.next_attempt_at,
        fault=step.fault,
    )
