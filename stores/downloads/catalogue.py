"""The catalogue of downloads: a row is written at acceptance, start and end, and read, listed and counted."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, literal_column, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import and_, col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from domain.downloads import names
from domain.downloads.activity_models import RecordEndInput
from domain.downloads.models import DownloadSpec, DownloadState, FileType
from domain.faults import FaultRecord
from domain.workload import ConcernKind, WorkByProject, merge_workloads, parse_uncounted_concerns, parse_workloads
from infra.database import Database
from infra.objects import ObjectStore
from stores import keyset
from stores.projects import build_null_or_future_condition
from stores.tables.downloads import CAUSE, Download
from stores.tables.shared import Project

CHANNEL = "haulage_downloads"

FAILED_WITHIN: Final = timedelta(days=1)
"""Failures count for a day only, since a failed download needs no action."""

_COUNTS: Final = """
    SELECT project_id, count(*) FILTER (WHERE state = 'running') AS running,
        min(coalesce(started_at, created_at)) FILTER (WHERE state = 'running') AS running_at,
        count(*) FILTER (WHERE state = 'pending') AS waiting,
        min(created_at) FILTER (WHERE state = 'pending') AS waiting_at, 0 AS failed, NULL::timestamptz AS failed_at
    FROM downloads WHERE state IN ('pending', 'running') GROUP BY project_id
    UNION ALL
    SELECT project_id, 0, NULL, 0, NULL, count(*), min(finished_at)
    FROM downloads WHERE state = 'failed' AND finished_at > now() - $1::interval GROUP BY project_id
"""
_CAUSES: Final = f"""
    SELECT project_id, '' AS subject, coalesce({CAUSE}, '') AS cause, count(*) FROM downloads
    WHERE state = 'failed' AND finished_at > now() - $1::interval GROUP BY 1, 3
"""  # noqa: S608 - constants only
_PURGE: Final = """
    DELETE FROM downloads WHERE task_id IN (
        SELECT task_id FROM downloads WHERE created_at < $1 AND state IN ('failed', 'cancelled', 'expired')
        ORDER BY created_at LIMIT $2
    )
"""

_UNFINISHED: Final = col(Download.state).in_([DownloadState.PENDING, DownloadState.RUNNING])


async def insert_accepted_download_if_new(database: Database, spec: DownloadSpec) -> None:
    """Insert the row of a download whose workflow was started, unless a worker has inserted it already."""
    statement = insert(Download).values(**_build_pending_row_values(spec), state=DownloadState.PENDING, processings=0)
    async with database.session() as session:
        await session.exec(statement.on_conflict_do_nothing(index_elements=["task_id"]))


async def record_processing_start(database: Database, spec: DownloadSpec, times_processed: int) -> None:
    """Record that the download is processed, for the first time or once more."""
    now = datetime.now(UTC)
    begun = {"state": DownloadState.RUNNING, "processings": times_processed, "finished_at": None, "fault": None}
    # The API inserts the row after it has started the workflow: it may not have come to that yet, or have failed to.
    statement = insert(Download).values(**_build_pending_row_values(spec), started_at=now, **begun)
    begun_again = {**begun, "started_at": func.coalesce(col(Download.started_at), now)}
    # A late attempt of a probe must not make what has ended run for ever; only a failed download may begin again.
    may_begin = col(Download.state).in_([DownloadState.PENDING, DownloadState.RUNNING, DownloadState.FAILED])
    upsert = statement.on_conflict_do_update(index_elements=["task_id"], set_=begun_again, where=may_begin)
    async with database.session() as session:
        await session.exec(upsert)
        await notify_api_processes_on_commit(database, session, spec, DownloadState.RUNNING)


def _build_pending_row_values(spec: DownloadSpec) -> dict[str, object]:
    return {
        "task_id": spec.task_id,
        "project_id": spec.project_id,
        "operator_id": spec.operator_id,
        "source_hosts": spec.source_hosts,
        "file_name": spec.file_name,
        "type": spec.type,
        "request": spec.model_dump(mode="json"),
        "created_at": spec.created_at or datetime.now(UTC),
    }


async def record_result_and_notify(database: Database, finish: RecordEndInput) -> None:
    """Write the result, and notify in the same transaction; a file that was deleted meanwhile stays deleted."""
    now, outcome, spec = datetime.now(UTC), finish.outcome, finish.spec
    values: dict[str, object] = {
        "state": outcome.state,
        "finished_at": now,
        "processings": finish.times_processed,
        "fetchers": finish.fetchers,
        "total_rows": outcome.total,
        "rows": finish.rows,
        "fault": outcome.fault.model_dump() if outcome.fault else None,
    }
    if outcome.file is not None:
        values |= {
            # An archive of several books has another extension than the requested name.
            "file_name": outcome.file.name,
            "rows": outcome.file.rows,
            "bytes": outcome.file.bytes,
            "etag": outcome.file.etag,
            "file": outcome.file.model_dump(),
            "expires_at": now + timedelta(seconds=spec.expires_in_seconds),
        }
    is_kept = col(Download.state) != DownloadState.EXPIRED
    ended = update(Download).where(col(Download.task_id) == spec.task_id, is_kept).values(**values)
    async with database.session() as session:
        await session.exec(ended)
        await notify_api_processes_on_commit(database, session, spec, outcome.state)


async def list_expired_downloads(database: Database, limit: int, *, excluded: Collection[str] = ()) -> list[Download]:
    """Return finished downloads whose files have expired, the oldest first, without some by their ids."""
    due = select(Download).where(
        col(Download.state) == DownloadState.SUCCEEDED,
        col(Download.expires_at) < datetime.now(UTC),
        col(Download.task_id).not_in(excluded),
    )
    async with database.session() as session:
        return list(await session.exec(due.order_by(col(Download.expires_at)).limit(limit)))


async def list_unfinished_downloads(database: Database, before: datetime) -> Sequence[Download]:
    """Return the downloads from before a time that have not ended."""
    query = select(Download).where(_UNFINISHED, col(Download.created_at) < before)
    async with database.session() as session:
        return (await session.exec(query)).all()


async def mark_unfinished_as_failed(database: Database, row: Download, fault: FaultRecord) -> None:
    """Mark a download as failed and notify, unless it has ended meanwhile."""
    values = {"state": DownloadState.FAILED, "finished_at": datetime.now(UTC), "fault": fault.model_dump()}
    async with database.session() as session:
        await session.exec(update(Download).where(col(Download.task_id) == row.task_id, _UNFINISHED).values(**values))
        # What was requested may be unreadable by now.
        await _notify_of_state_on_commit(database, session, row.project_id, row.task_id, DownloadState.FAILED)


async def purge_rows_of_ended_downloads(database: Database, before: datetime, limit: int) -> int:
    """Delete rows of downloads from before a time that have ended and have no file; return how many."""
    async with database.connection() as connection:
        deleted = await connection.execute(_PURGE, before, limit)
    return int(deleted.rpartition(" ")[2])


async def delete_file_and_mark_expired(database: Database, objects: ObjectStore, spec: DownloadSpec) -> None:
    """Delete a finished file, and mark it as expired."""
    # Delete the bytes first: a row that is marked as expired is not looked at again.
    await objects.delete_prefix(names.build_files_prefix(spec))
    over = func.least(col(Download.expires_at), datetime.now(UTC))
    async with database.session() as session:
        values = {"state": DownloadState.EXPIRED, "file": None, "expires_at": over}
        await session.exec(update(Download).where(col(Download.task_id) == spec.task_id).values(**values))
        await notify_api_processes_on_commit(database, session, spec, DownloadState.EXPIRED)


async def notify_api_processes_on_commit(
    database: Database, session: AsyncSession, spec: DownloadSpec, state: DownloadState
) -> None:
    """Notify every API process when the session commits."""
    await _notify_of_state_on_commit(database, session, spec.project_id, spec.task_id, state)


async def _notify_of_state_on_commit(
    database: Database, session: AsyncSession, project_id: str, task_id: str, state: DownloadState
) -> None:
    changed = {"project_id": project_id, "task_id": task_id, "state": state}
    await database.notify_on_commit(session, CHANNEL, json.dumps(changed))


@dataclass(frozen=True, slots=True)
class DownloadFilter:
    """Which downloads to list; None does not filter."""

    project_id: str | None = None
    task_id: str | None = None
    state: DownloadState | None = None
    cause: str | None = None
    """The code of the fault."""

    type: FileType | None = None
    operator_id: str | None = None
    source_host: str | None = None
    file_name: str | None = None
    """A part of the name; case does not matter."""

    created_after: datetime | None = None
    """Inclusive."""

    created_before: datetime | None = None


async def find_download(database: Database, project_id: str, task_id: str) -> Download | None:
    """Return a project's download; None if there is none."""
    query = select(Download).where(Download.task_id == task_id, Download.project_id == project_id)
    async with database.session() as session:
        return (await session.exec(query)).one_or_none()


async def find_download_of_live_project(database: Database, project_id: str, task_id: str) -> Download | None:
    """Return a project's download, unless the project was revoked."""
    query = (
        select(Download)
        .join(Project, col(Project.project_id) == Download.project_id)
        .where(Download.task_id == task_id, Download.project_id == project_id)
        .where(build_null_or_future_condition(Project.revoked_at))
    )
    async with database.session() as session:
        return (await session.exec(query)).one_or_none()


async def list_download_page_plus_one(
    database: Database, filters: DownloadFilter, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Download]:
    """Return downloads, newest first, and one more if another page follows."""
    statement = select(Download).where(*_build_conditions(filters))
    statement = keyset.select_page_plus_one(statement, (Download.created_at, Download.task_id), after, limit)
    async with database.session() as session:
        return (await session.exec(statement)).all()


async def list_unfinished_or_recently_ended(
    database: Database, project_id: str, *, ended_within: timedelta, limit: int
) -> Sequence[str]:
    """Return the ids of a project's downloads that run or ended recently, newest first."""
    just_ended = col(Download.finished_at) > func.now() - ended_within
    query = select(Download.task_id).where(Download.project_id == project_id, or_(_UNFINISHED, just_ended))
    async with database.session() as session:
        return (await session.exec(query.order_by(col(Download.created_at).desc()).limit(limit))).all()


def _build_conditions(filters: DownloadFilter) -> list[ColumnElement[bool]]:
    equal_values = {
        Download.project_id: filters.project_id,
        Download.task_id: filters.task_id,
        Download.type: filters.type,
        Download.operator_id: filters.operator_id,
    }
    conditions = [col(column) == value for column, value in equal_values.items() if value is not None]
    if filters.state is not None:
        conditions.append(_build_state_condition(filters.state))
    if filters.cause is not None:
        conditions += [col(Download.fault).is_not(None), literal_column(CAUSE) == filters.cause]
    if filters.source_host is not None:
        conditions.append(col(Download.source_hosts).contains([filters.source_host]))
    if filters.file_name is not None:
        conditions.append(col(Download.file_name).icontains(filters.file_name, autoescape=True))
    if filters.created_after is not None:
        conditions.append(col(Download.created_at) >= filters.created_after)
    if filters.created_before is not None:
        conditions.append(col(Download.created_at) < filters.created_before)
    return conditions


async def count_downloads_and_failure_causes_by_project(database: Database) -> WorkByProject:
    """Count the downloads of every project by state, and why some failed."""
    async with database.connection() as connection:
        counts = parse_workloads(await connection.fetch(_COUNTS, FAILED_WITHIN))
        causes = await connection.fetch(_CAUSES, FAILED_WITHIN)
    return merge_workloads(counts, parse_uncounted_concerns(ConcernKind.FAILED, causes))


def _build_state_condition(state: DownloadState) -> ColumnElement[bool]:
    """Build the condition of a state; a file past its time counts as expired before housekeeping removes it."""
    recorded = col(Download.state) == state
    overdue = col(Download.expires_at) <= func.now()
    match state:
        case DownloadState.SUCCEEDED:
            return and_(recorded, ~overdue)
        case DownloadState.EXPIRED:
            return or_(recorded, and_(col(Download.state) == DownloadState.SUCCEEDED, overdue))
        case _:
            return recorded
