"""What a database that was restored from a backup has under way, to be compared with engine and object store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlmodel import col, select

from domain.downloads.models import DownloadState
from infra.database import Database
from stores.tables.downloads import Download
from stores.tables.orders import OrderPlatform
from stores.tables.shared import Delivery, Project
from stores.tables.tasks import OpenLaneHead, TaskType
from stores.tables.transfers import TransferJobTimesRow, TransferShard


class PlatformWithProjectAndWatermark(NamedTuple):
    """A platform, its project, and up to when its orders are complete."""

    platform: str
    project_id: str
    complete_to: datetime | None


class UnfinishedTransferJobShards(NamedTuple):
    """A job of transfers that has not ended, and the numbers of its shards."""

    job_id: str
    shards: list[int]


async def list_downloads_in_states(database: Database, *states: DownloadState) -> Sequence[Download]:
    """Return the downloads in these states, the oldest first."""
    query = select(Download).where(col(Download.state).in_(states)).order_by(col(Download.created_at))
    async with database.session() as session:
        return (await session.exec(query)).all()


async def list_download_keys(database: Database) -> set[tuple[str, ...]]:
    """Return the project and the task id of every download."""
    async with database.session() as session:
        return {tuple(row) for row in await session.exec(select(Download.project_id, Download.task_id))}


async def list_unfinished_jobs(database: Database) -> list[UnfinishedTransferJobShards]:
    """Return the jobs that have not ended and are not purged."""
    query = (
        select(TransferJobTimesRow.job_id, TransferShard.number)
        .join(TransferShard, col(TransferShard.job) == col(TransferJobTimesRow.id))
        .where(col(TransferJobTimesRow.finished_at).is_(None), col(TransferJobTimesRow.purged_at).is_(None))
    )
    shards: dict[str, list[int]] = {}
    async with database.session() as session:
        for job_id, number in await session.exec(query):
            shards.setdefault(job_id, []).append(number)
    return [UnfinishedTransferJobShards(job_id, numbers) for job_id, numbers in shards.items()]


async def list_pending_deliveries(database: Database) -> Sequence[Delivery]:
    """Return the deliveries of webhooks that have not ended."""
    async with database.session() as session:
        return (await session.exec(select(Delivery).where(col(Delivery.finished_at).is_(None)))).all()


async def list_platforms_with_project_and_watermark(database: Database) -> list[PlatformWithProjectAndWatermark]:
    """Return the platforms that were not removed."""
    query = select(OrderPlatform.platform, OrderPlatform.project_id, OrderPlatform.complete_to)
    async with database.session() as session:
        rows = await session.exec(query.where(col(OrderPlatform.removed_at).is_(None)).order_by(OrderPlatform.platform))
        return [PlatformWithProjectAndWatermark(*row) for row in rows]


async def list_open_lanes(database: Database) -> dict[tuple[str, int], int]:
    """Return the open lanes by type and position, with the tasks that each had when its head was saved."""
    async with database.session() as session:
        rows = (await session.exec(select(OpenLaneHead))).all()
    return {(row.type, row.pos): row.pending + row.running for row in rows}


async def load_last_lane_positions(database: Database) -> dict[str, int]:
    """Return the types of tasks, each with the position of its last lane."""
    async with database.session() as session:
        return dict((await session.exec(select(TaskType.type, TaskType.end_pos))).all())


async def list_project_ids(database: Database) -> set[str]:
    """Return the ids of all projects, revoked ones as well."""
    async with database.session() as session:
        return set(await session.exec(select(Project.project_id)))
