"""Browsing: the jobs of the last windows, newest first, those that targets still join before all others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic import Field

from api import paging
from api.paging import Page, PageQuery
from api.routes import Access, Call
from api.transfers.answers import JobSummary, summarised
from api.transfers.listing import Waiting
from api.transfers.room import desk, routes
from domain.faults import Invalid
from domain.transfers import ids
from domain.transfers.ids import Job
from domain.transfers.states import State
from stores.transfers import jobs
from stores.transfers.jobs import JobRow


class JobsWanted(PageQuery):
    """Which jobs to list."""

    ended: bool | None = Field(default=None, description="true: only those whose targets all ended; false: the others")
    search: str | None = Field(default=None, max_length=300, description="only jobs whose id holds this text")


@routes.get("/v1/transfers/jobs", access=Access.PROJECTS, problems={"cursor_invalid": Invalid})
async def browse_jobs(call: Call, query: JobsWanted) -> Page[JobSummary]:
    """List the jobs that your project has targets in, those of the newest window first.

    Jobs whose window is open lead the first page. A job is listed as long as it can be asked about. The admin key that
    names no project lists everybody's.
    """
    here, project_id = desk(call).listing, call.scope
    after = None if query.after is None else paging.number(query.after[1])
    waiting = [] if after is not None or query.ended else await here.waiting(project_id, query.search or "")
    rows = await jobs.list_page(call.services.database, project_id, query.search or "", query.ended, after, query.limit)
    listed = [(job, row) for row in rows if (job := ids.read_job(row.job_id))]
    shown = listed[: query.limit]
    counts = await here.counts([row for _, row in shown], project_id)
    more = paging.encode((shown[-1][1].closes_at, str(shown[-1][1].id))) if len(listed) > query.limit else None
    # One that was written down between the two questions is in both answers.
    written = {job for job, _ in listed}
    waiting = [each for each in waiting if each.job not in written]
    items = [_collecting(call, each) for each in waiting] + [_written(job, row, counts[row.id]) for job, row in shown]
    return Page[JobSummary](items=items, next_cursor=more)


def _collecting(call: Call, waiting: Waiting) -> JobSummary:
    settings = call.services.settings.transfers
    closes_at = datetime.fromtimestamp(ids.closes_at(waiting.job.bucket, settings.window_seconds), UTC)
    deadline_at = closes_at + timedelta(seconds=settings.timeout_seconds)
    return JobSummary(**summarised(waiting.job, {State.PENDING: waiting.targets}, closes_at, deadline_at))


def _written(job: Job, row: JobRow, counts: dict[State, int]) -> JobSummary:
    return JobSummary(**summarised(job, counts, row.closes_at, row.deadline_at, row.finished_at, row.retry_of))
