"""The activities of transfers, each safe to repeat."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
import uuid
from datetime import timedelta
from functools import partial

from temporalio import activity

from activities.removal import remove_in_batches
from activities.transfers.journal import Journal
from activities.transfers.repository import Repository
from activities.transfers.shipping import Shipping, Voyage
from clients.gse import GseFailure
from domain.transfers import names
from domain.transfers.activity_models import (
    Berth,
    CancelOrder,
    FetchOrder,
    FreezeOrder,
    LookOrder,
    SettleOrder,
    ShardPlace,
    ShipOrder,
)
from domain.transfers.gse import absence
from domain.transfers.joining import JobOrder
from domain.transfers.models import Summary, summary
from domain.transfers.shipment import Rules, Shipment
from infra import log
from infra.heartbeats import send_heartbeats
from infra.settings import GseSettings
from services.services import Services
from stores.transfers import jobs, shards, targets
from stores.transfers.shards import ShardLedger

HOST_QUEUE = "transfers-host-"
JOURNAL = ".gse-tasks"
STATES_SECONDS = 5.0
"""How long a job waits to be told which agents are there."""
SHIP_BEAT_SECONDS = 2.0
"""A large job has hundreds of shards on their way; each heartbeat is a write of the engine's."""


def host_queue(settings: GseSettings) -> str:
    """The task queue that only workers on this host serve: whoever GSE knows by the same name has the same files."""
    if not settings.source_agent_id:
        return f"{HOST_QUEUE}{socket.gethostname()}"
    name = f"{settings.source_agent_id}\0{settings.source_container_id}"
    return f"{HOST_QUEUE}{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class TransferActivities:
    """The activities of the transfers room, with the clients they work with."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings.transfers
        self._database = services.database
        self._files = services.files
        self._gse = services.gse
        self._journal = Journal(services.settings.gse.cache_folder / JOURNAL)
        self._journal.sweep()
        self._repository = Repository(services)
        self._queue = host_queue(services.settings.gse)
        gse = services.settings.gse
        self._answer_seconds = gse.connect_timeout_seconds + gse.answer_timeout_seconds

    @activity.defn(name="transfer_freeze")
    async def freeze(self, freeze: FreezeOrder) -> None:
        """Write down who is in these shards."""
        await shards.save(self._database, freeze.job, freeze.shards)

    @activity.defn(name="transfer_freeze_retry")
    async def freeze_retry(self, job: JobOrder) -> list[ShardPlace]:
        """Write down the failed targets of an earlier job, to be sent again; tell in which shards."""
        if job.retry is None:
            raise ValueError(f"{job.job_id} is no retry")
        return await shards.save_retry(self._database, job, job.retry)

    @activity.defn(name="transfer_look")
    async def look(self, look: LookOrder) -> None:
        """End targets whose agents are surely not there. Where GSE does not say so in time, all are sent to."""
        if not self._settings.ask_agent_states:
            return
        agents = await targets.list_pending_agents(self._database, look.job.job_id, look.numbers)
        try:
            async with asyncio.timeout(STATES_SECONDS):
                states = await self._gse.agent_states(agents)
        except (GseFailure, TimeoutError) as error:
            log.get(__name__).warning("gse_agent_states_unknown", agents=len(agents), error=repr(error))
            return
        absent = {agent_id: why for agent_id in agents if (why := absence(agent_id, states.get(agent_id)))}
        if absent:
            await targets.fail_absent(self._database, look.job.job_id, look.numbers, absent)

    @activity.defn(name="transfer_fetch")
    async def fetch(self, fetch: FetchOrder) -> Berth:
        """Have the file on this host, whole."""
        async with send_heartbeats():
            write = self._repository.fetch(fetch.file, fetch.signature)
            async with self._files.pin(fetch.file.biz_id, fetch.signature, write):
                return Berth(queue=self._queue, fetched_at=time.time())

    @activity.defn(name="transfer_ship")
    async def ship(self, ship: ShipOrder) -> None:
        """Bring the file to every target of a shard, or learn why not; it is pinned meanwhile."""
        job, file = ship.job, ship.job.file
        record = ShardLedger(self._database, job.job_id, ship.number, uuid.uuid4().hex)
        async with send_heartbeats(pause_seconds=SHIP_BEAT_SECONDS):
            consignment, items, sendings = await record.take_over()
            settings = self._settings
            rules = Rules(settings.retries, settings.retry_pause_seconds, settings.silence_seconds)
            shipment = Shipment(items, rules, sendings)
            write = self._repository.fetch(file, ship.signature)

            async def check_file() -> None:
                self._files.invalidate(file.biz_id, ship.signature)
                async with self._files.pin(file.biz_id, ship.signature, write):
                    pass

            async with self._files.pin(file.biz_id, ship.signature, write) as path:
                voyage = Voyage(
                    consignment=consignment,
                    path=path,
                    fetched_at=ship.fetched_at or time.time(),
                    deadline=job.deadline_at.timestamp(),
                    terminate_wait_seconds=job.terminate_wait_seconds,
                    journal_wait_seconds=self._answer_seconds,
                    check_file=check_file,
                )
                await Shipping(self._gse, record, self._journal, shipment, voyage).run()

    @activity.defn(name="transfer_settle")
    async def settle(self, settle: SettleOrder) -> None:
        """End the targets of shards that nobody ships any more."""
        await targets.end_unfinished(self._database, settle.job.job_id, settle.numbers, settle.end)

    @activity.defn(name="transfer_cancel")
    async def cancel(self, cancel: CancelOrder) -> None:
        """Say that these projects' targets are no longer wanted; who ships them hears it at the next poll."""
        await targets.cancel(self._database, cancel.job.job_id, cancel.project_ids)

    @activity.defn(name="transfer_finish")
    async def finish(self, job: JobOrder) -> Summary:
        """All targets have ended: say how, and keep that for a while."""
        kept = timedelta(seconds=self._settings.kept_seconds)
        return summary(await jobs.finish(self._database, job.job_id, kept))


BATCH = 10
"""A large job has 100,000 targets."""
CANCELS_KEPT = timedelta(days=1)
JOBS_KNOWN = timedelta(days=7)
"""How long it is still said of a job that it was there, after its targets are gone."""


class TransferHousekeeping:
    """The activity that keeps the record of transfers short."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name=names.PURGE)
    async def purge(self) -> int:
        """Remove jobs whose time is over, some at a time; tell how many."""
        purged = await remove_in_batches(partial(jobs.purge_targets, self._database), BATCH)
        await jobs.purge(self._database, JOBS_KNOWN)
        await jobs.purge_cancels(self._database, CANCELS_KEPT)
        if purged:
            log.get(__name__).info("transfers_purged", jobs=purged)
        return purged
