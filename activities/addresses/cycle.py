"""The steps of a cycle: load, apply, see which swaps wait, archive."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.addresses import applying, hearing, reviving
from domain.addresses import names
from domain.addresses.cycle import Applied, ApplyOrder, LoadOrder, Plan, Queued, QueueOrder
from infra import log, metrics
from infra.database import Database
from infra.heartbeats import beating
from services.addresses.configuration import Configuration
from stores.addresses import archiving, loading


class CycleSteps:
    """What moves messages through the log and into the modules."""

    def __init__(self, database: Database, engine: Client, configuration: Configuration) -> None:
        self._database = database
        self._engine = engine
        self._configuration = configuration

    @activity.defn(name="address_load")
    async def load(self, order: LoadOrder) -> Plan:
        """Take the messages of a cycle, unless the schedule is paused: then a run that is going on ends, too."""
        async with beating():
            if await self._is_paused():
                return Plan(paused=True)
            config = await self._configuration.newest()
            plan = await loading.load(self._database, config.settings, order.cycle_id)
            if not plan.loaded:
                await hearing.hear(self._database, config.modules)
                if await reviving.revive(self._database, config.settings.retries, config.modules):
                    plan = await loading.load(self._database, config.settings, order.cycle_id)
                # What operators skip is done without a cycle.
                await archiving.archive(self._database)
            return plan.model_copy(update={"config_version": config.version})

    @activity.defn(name="address_apply")
    async def apply(self, order: ApplyOrder) -> Applied:
        """Apply some messages in all four modules, and write what they said."""
        async with beating():
            config = await self._configuration.of(order.config_version)
            applied = await applying.apply(self._database, config.settings, config.modules, order)
        for outcome in ("done", "failed", "superseded"):
            metrics.ADDRESS_ENDINGS.labels(outcome).inc(getattr(applied, outcome))
        if applied.failed:
            log.get(__name__).warning(
                "addresses_failed",
                cycle=order.cycle_id,
                phase=order.phase.value,
                failed=applied.failed,
                done=applied.done,
            )
        return applied

    @activity.defn(name="address_waiting")
    async def waiting(self, order: QueueOrder) -> Queued:
        """Which swaps of the cycle are to be tried once more."""
        async with beating():
            config = await self._configuration.of(order.config_version)
            return Queued(steps=await loading.waiting_swaps(self._database, config.settings, order.cycle_id))

    @activity.defn(name="address_archive")
    async def archive(self) -> int:
        """Move what is done to the history, but first hear of what was made needless."""
        async with beating():
            await hearing.hear(self._database, (await self._configuration.newest()).modules)
            return await archiving.archive(self._database)

    async def _is_paused(self) -> bool:
        try:
            schedule = await self._engine.get_schedule_handle(names.SCHEDULE).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return schedule.schedule.state.paused
