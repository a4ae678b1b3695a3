"""The list of jobs, and what the overview counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from api.http import pagination
from api.http.pagination import PageResponse
from api.http.routes import Call, RouteAccess
from api.transfers.context import UnsavedJob, get_transfer_context, routes
from api.transfers.queries import build_unsaved_job_summary_fields
from api.transfers.requests import HostTargetsQuery, TransferJobsQuery
from api.transfers.responses import (
    HostTargetResponse,
    HostTargetsResponse,
    TransferJobSummary,
    build_job_summary_fields,
    build_target_fields,
)
from domain.faults import Invalid
from domain.transfers import names
from domain.transfers.models import TransferState
from domain.transfers.names import TransferJobKey
from domain.workload import WorkByProject
from infra.settings import Settings
from services.services import Services
from stores.transfers import jobs, targets
from stores.transfers.jobs import JobFilter, TransferJobIdAndTimes
from stores.transfers.targets import TargetFilter
from stores.transfers.workloads import TransferTargetCounter

UNIT: Final = "targets"
HAS_PROJECTS: Final = True
STANDSTILL_SECONDS: Final = 3_600


def get_failure_count_period(settings: Settings) -> timedelta:
    """Return how long a failure is counted: the retention of jobs."""
    return timedelta(seconds=settings.transfers.kept_seconds)


def build_workload_counter(services: Services) -> Callable[[], Awaitable[WorkByProject]]:
    """Return the function that counts targets."""
    return TransferTargetCounter(services.database).count_workloads


@routes.get("/v1/transfers/jobs", access=RouteAccess.PROJECTS, problems={"cursor_invalid": Invalid})
async def list_jobs(call: Call, query: TransferJobsQuery) -> PageResponse[TransferJobSummary]:
    """List the jobs that your project has targets in, those of the newest window first.

    Jobs whose window is open come first on the first page. A job is listed as long as its state is kept. With the admin
    key and no project, the jobs of all projects are listed.
    """
    job_lists, project_id, search = get_transfer_context(call).job_lists, call.project_filter, query.search or ""
    after = None if query.after is None else pagination.parse_numeric_id_or_zero(query.after[1])
    filters = JobFilter(search, query.ended, query.reason, query.window_closes_after, query.window_closes_before)
    is_old = after is not None or query.ended or query.reason is not None or query.window_closes_before is not None
    collecting = [] if is_old else await job_lists.list_jobs_not_saved_yet(project_id, search)
    rows = await jobs.list_job_page_plus_one(call.services.database, project_id, filters, after, query.limit)
    saved = [(job, row) for row in rows if (job := names.parse_job_id(row.job_id))]
    page = saved[: query.limit]
    counts = await job_lists.count_targets_by_state([row for _, row in page], project_id)
    cursor = None
    if len(saved) > query.limit:
        last = page[-1][1]
        cursor = pagination.encode_cursor((last.closes_at, str(last.id)))
    # A job that was saved between the two queries is in both lists.
    saved_jobs = {job for job, _ in saved}
    items = [_build_unsaved_job_summary(call, each) for each in collecting if each.job not in saved_jobs]
    items += [_build_saved_job_summary(job, row, counts[row.id]) for job, row in page]
    return PageResponse[TransferJobSummary](items=items, next_cursor=cursor)


@routes.get("/v1/transfers/targets", access=RouteAccess.PROJECTS)
async def list_host_targets(call: Call, query: HostTargetsQuery) -> HostTargetsResponse:
    """List what a host was sent, over all jobs, those of the newest window first.

    A target is listed once the window of its job has ended, and as long as the state of its job is kept.
    """
    filter_ = TargetFilter(query.status, query.reason)
    rows = await targets.list_host_target_page_plus_one(
        call.services.database, query.target_agent_id, call.project_filter, filter_, query.after, query.limit
    )
    page = rows[: query.limit]
    return HostTargetsResponse(
        items=[HostTargetResponse(**build_target_fields(each.target), job_id=each.job_id) for each in page],
        next_cursor=f"{page[-1].job}.{page[-1].target.key}" if len(rows) > len(page) else None,
    )


def _build_unsaved_job_summary(call: Call, collecting: UnsavedJob) -> TransferJobSummary:
    return TransferJobSummary(**build_unsaved_job_summary_fields(call, collecting.job, collecting.targets))


def _build_saved_job_summary(
    job: TransferJobKey, row: TransferJobIdAndTimes, counts: dict[TransferState, int]
) -> TransferJobSummary:
    return TransferJobSummary(
        **build_job_summary_fields(job, counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    )
