"""The list of jobs, and what the overview counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from api.http import pagination
from api.http.pagination import PageResponse
from api.http.routes import Access, Call
from api.transfers.context import CollectingJob, get_context, routes
from api.transfers.queries import summarize_collecting
from api.transfers.requests import TransferJobsQuery
from api.transfers.responses import TransferJobSummary, summarize_job
from domain.faults import Invalid
from domain.transfers import names
from domain.transfers.models import TransferState
from domain.transfers.names import TransferJobKey
from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from stores.transfers import jobs
from stores.transfers.jobs import JobRow, TransferCounter

UNIT: Final = "targets"
HAS_PROJECTS: Final = True


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """Return the time since which failures are counted: the retention of jobs."""
    return now - timedelta(seconds=settings.transfers.kept_seconds)


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """Return the function that counts targets."""
    return TransferCounter(services.database).count


@routes.get("/v1/transfers/jobs", access=Access.PROJECTS, problems={"cursor_invalid": Invalid})
async def list_jobs(call: Call, query: TransferJobsQuery) -> PageResponse[TransferJobSummary]:
    """List the jobs that your project has targets in, those of the newest window first.

    Jobs whose window is open come first on the first page. A job is listed as long as its state is kept. With the admin
    key and no project, the jobs of all projects are listed.
    """
    job_lists, project_id, search = get_context(call).job_lists, call.scope, query.search or ""
    after = None if query.after is None else pagination.parse_numeric_id(query.after[1])
    collecting = [] if after is not None or query.ended else await job_lists.list_collecting(project_id, search)
    rows = await jobs.list_page(call.services.database, project_id, search, query.ended, after, query.limit)
    saved = [(job, row) for row in rows if (job := names.parse_job_id(row.job_id))]
    page = saved[: query.limit]
    counts = await job_lists.count_states([row for _, row in page], project_id)
    cursor = None
    if len(saved) > query.limit:
        last = page[-1][1]
        cursor = pagination.encode_cursor((last.closes_at, str(last.id)))
    # A job that was saved between the two queries is in both lists.
    saved_jobs = {job for job, _ in saved}
    items = [_build_collecting(call, each) for each in collecting if each.job not in saved_jobs]
    items += [_build_saved(job, row, counts[row.id]) for job, row in page]
    return PageResponse[TransferJobSummary](items=items, next_cursor=cursor)


def _build_collecting(call: Call, collecting: CollectingJob) -> TransferJobSummary:
    return TransferJobSummary(**summarize_collecting(call, collecting.job, collecting.targets))


def _build_saved(job: TransferJobKey, row: JobRow, counts: dict[TransferState, int]) -> TransferJobSummary:
    return TransferJobSummary(
        **summarize_job(job, counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of)
    )
