"""Maintenance beside the cycles: scheduled checks, and requested purges and comparisons, on a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from domain.addresses import names
from domain.addresses.activity_models import (
    AddressIdsByPurgeOutcome,
    ComparisonIdInput,
    ModuleComparisonCounts,
    PurgeAddressesInput,
)
from domain.addresses.operations import Module
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from sims.oss.server import Oss, running_oss
from stores.tables.addresses import LogicalDelete
from tests.integration.test_address_purging import build_delete
from tests.support import modules as module_peers
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.addresses import handle as addresses_handle
from workflows.addresses.maintenance import ModuleComparison, SelectedAddressesPurge

pytestmark = pytest.mark.stack


@asynccontextmanager
async def serving(settings: Settings, folder: Path) -> AsyncIterator[tuple[Oss, Client]]:
    """The modules, and a worker of the queue of addresses."""
    async with running_oss(folder) as oss:
        addresses = module_peers.module_settings(oss.base, folder, batch=500)
        async with running_worker(settings.model_copy(update={"addresses": addresses}), [names.QUEUE]) as running:
            yield oss, running.services.engine


async def test_checks_run_by_schedule(settings: Settings, database: Database, tmp_path: Path) -> None:
    """The schedule is made once and mended; what it starts marks what may be removed."""
    async with database.session() as session:
        session.add(build_delete(1, 1, 60, Module.OD))
    async with serving(settings, tmp_path) as (_, engine):
        await addresses_handle.create_or_update_check_schedule(engine, 24)
        handle = await addresses_handle.create_or_update_check_schedule(engine, 12)
        await handle.trigger()

        async def is_purged() -> bool:
            async with database.session() as session:
                row = await session.get_one(LogicalDelete, 1)
                return row.removable_at is not None

        await eventually(is_purged)
        spec = (await handle.describe()).schedule.spec
        await handle.delete()

    assert [interval.every for interval in spec.intervals] == [timedelta(hours=12)]


async def test_a_purge_and_a_comparison_are_ordered(settings: Settings, database: Database, tmp_path: Path) -> None:
    """As the API starts them."""
    async with database.session() as session:
        session.add(build_delete(1, 1, 60, Module.OD))
    async with serving(settings, tmp_path) as (_, engine):
        purge = PurgeAddressesInput(address_ids=[1], who="ann")
        purged: AddressIdsByPurgeOutcome = await engine.execute_workflow(
            SelectedAddressesPurge.run, purge, id=names.build_purge_workflow_id("1"), task_queue=names.QUEUE
        )
        report: ModuleComparisonCounts = await engine.execute_workflow(
            ModuleComparison.run,
            ComparisonIdInput(comparison_id="1"),
            id=names.build_comparison_workflow_id("1"),
            task_queue=names.QUEUE,
        )

    assert purged == AddressIdsByPurgeOutcome(purged=[1])
    assert (report.compared, report.different) == (0, 0)


async def test_a_paused_schedule_of_checks_stays_paused(settings: Settings) -> None:
    """Preparing the installation again changes nothing of that."""
    engine = await temporal.connect()
    handle = await addresses_handle.create_or_update_check_schedule(engine, settings.addresses.check_hours)
    await handle.pause()
    again = await addresses_handle.create_or_update_check_schedule(engine, settings.addresses.check_hours)

    assert (await again.describe()).schedule.state.paused
    await again.delete()
