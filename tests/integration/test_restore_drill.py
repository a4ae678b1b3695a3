"""The drill of a restore: back up while all systems work, destroy everything, restore, and let callers go on."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.backups import backup, restore
from cli.backups.backup import EngineDatabases
from cli.backups.reconcile import reconcile_all_systems
from dev.embedded.components import ENGINE, ENGINE_FILE
from dev.embedded.stack import run_stack
from dev.local import run_installation_on_stack
from domain.faults import Conflict
from sims.source import Source, running_source
from tests.support.caller import Caller, running_caller
from tests.support.deployment import Deployment, OutsideSystems, running_outside_systems, running_processes
from tests.support.restored_work import WorkOfAllSystems, check_restored_work
from tests.support.stack import ANY_PORTS

pytestmark = pytest.mark.stack

RUN_WITHOUT_STAND_INS = partial(run_installation_on_stack, simulated_services=())

Json = dict[str, Any]


@asynccontextmanager
async def running_installation(data_dir: Path, outside: OutsideSystems, source: Source) -> AsyncIterator[Deployment]:
    """Parts in a data folder, and processes that work with the stand-ins."""
    hosts = [each.removeprefix("http://") for each in (outside.receiver.base, outside.platforms.base, source.base)]
    changes: Mapping[str, Json] = {
        "guard": {"allow": hosts},
        # The deadline of a transfer must not pass while an installation is restored on a busy machine.
        "transfers": {"timeout_seconds": 3_600.0},
        "gse": {"cache_folder": data_dir / "cache"},
    }
    async with (
        run_stack(data_dir, ui=False, ports=ANY_PORTS, for_tests=True) as stack,
        running_processes(stack, outside, changes, run=RUN_WITHOUT_STAND_INS) as deployment,
    ):
        yield deployment


@pytest.mark.long
async def test_what_was_acknowledged_before_a_backup_is_there_after_a_restore() -> None:
    """What was done is there, what was under way ends, what came later is refused in a sentence and may be repeated."""
    base = Path(tempfile.mkdtemp(prefix="haulage-backup-"))
    first, second, copy = (base / name for name in ("first", "second", "copy"))
    try:
        async with running_outside_systems() as outside, running_source() as source:
            async with running_installation(first, outside, source) as deployment, running_caller(deployment) as caller:
                work = WorkOfAllSystems(deployment, caller, source.base)
                await work.begin()
                await backup.back_up(deployment.settings, copy, EngineDatabases(file=first / ENGINE / ENGINE_FILE))
                before = {*work.pushed}
                await work.go_on()
                headers = {"Authorization": caller.session.headers["Authorization"]}
            second.mkdir()
            shutil.copy(first / "secrets.json", second / "secrets.json")
            shutil.rmtree(first)

            found = await restore.restore_embedded(copy, second, ANY_PORTS)

            assert [sentence for sentence in found if not sentence.startswith("Platform")] == []
            with pytest.raises(Conflict, match="has data already"):
                await restore.restore_embedded(copy, second, ANY_PORTS)
            async with (
                running_installation(second, outside, source) as deployment,
                aiohttp.ClientSession(deployment.api, headers=headers) as session,
            ):
                work.use(deployment, Caller(session, caller.project_id))
                with pytest.raises(Conflict, match="Stop all of them first"):
                    await reconcile_all_systems(deployment.settings, await deployment.engine())
                await check_restored_work(work, before)
    finally:
        await asyncio.to_thread(shutil.rmtree, base)
