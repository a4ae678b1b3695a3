"""`python -m tests.cluster.drill`: back up a lab at work, destroy all its hosts, restore, and compare."""

from __future__ import annotations

import asyncio
import shutil
import time

import aiohttp

from lab.configuration import USERS
from lab.inside import enter_own_namespaces
from lab.running import Lab
from lab.tools import FOLDER, prepare_tools
from tests.cluster.installation import CALL_TIMEOUT, running_lab_deployment
from tests.cluster.outcome import make_project, say
from tests.support.restored_work import WorkOfAllSystems, check_restored_work

BACKUPS = FOLDER / "backups"
COPY_ON_HOSTS = "/opt/haulage/.haulage-lab/backups/copy"
"""Every host sees the checkout: a folder there is what outlives all hosts."""
PATIENT = {"TRANSFERS__TIMEOUT_SECONDS": 3_600}
"""The deadline of a transfer must not pass while everything is destroyed and restored."""


async def run() -> None:
    """Make the drill; return only if every checker finds what must be."""
    shutil.rmtree(BACKUPS, ignore_errors=True)
    BACKUPS.mkdir(parents=True)
    shutil.chown(BACKUPS, USERS["haulage"], USERS["haulage"])
    async with running_lab_deployment(say, PATIENT) as deployment:
        headers = {"Authorization": f"Bearer {deployment.installation.admin_key}"}
        async with aiohttp.ClientSession(base_url=deployment.api, timeout=CALL_TIMEOUT) as session:
            caller = await make_project(session, headers)
            work = WorkOfAllSystems(deployment, caller, deployment.source)
            await work.begin()
            say("All systems have done work, and have some under way.")
            say(await deployment.lab.run_haulage("backup", COPY_ON_HOSTS, *_name_engine_databases(deployment.lab)))
            messages = {*work.pushed}
            await work.go_on()
            say("More was accepted and done, which the backup does not know.")
            began = time.monotonic()
            await _destroy_and_restore(deployment.lab)
            say(f"Restored {time.monotonic() - began:.0f} s after all hosts were destroyed.")
            await check_restored_work(work, messages)
    say("Downloads, transfers, orders, addresses and tasks are what docs/how-to/backup.md says.")


async def _destroy_and_restore(lab: Lab) -> None:
    await lab.destroy()
    say("All hosts and their disks are destroyed.")
    await lab.start_empty()
    say(await lab.run_haulage("restore", COPY_ON_HOSTS, *_name_engine_databases(lab)))
    await lab.start_engine()
    say(await lab.run_haulage("reconcile"))
    await lab.start_haulage()


def _name_engine_databases(lab: Lab) -> list[str]:
    server = f"postgresql://temporal:{lab.configuration.secrets.engine_database}@database"
    return [f"--engine-database={server}/{name}" for name in ("temporal", "temporal_visibility")]


def main() -> None:
    """Run within namespaces of our own."""
    prepare_tools()
    enter_own_namespaces("tests.cluster.drill", [])
    asyncio.run(run())


if __name__ == "__main__":
    main()
