"""`python -m tests.rehearsal [SEED]`: roll the next version in and back under load of all five systems.

Exit code 1: work was lost or doubled, a request was refused, or a history does not replay.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import aiohttp
from temporalio.client import Client

from dev.embedded.stack import run_stack
from domain import VERSION
from infra import log
from tests.cluster.load import build_loads
from tests.cluster.outcome import make_project, print_verdicts, say, wait_for_recovery
from tests.cluster.record import Answers, Verdict
from tests.cluster.work import Load
from tests.rehearsal.next_version import ROOT, build_next_version
from tests.rehearsal.next_version import VERSION as NEXT
from tests.rehearsal.processes import HOSTS, VersionedInstallation, running_versions
from tests.support.deployment import Deployment, running_deployment

SEED = 1
HISTORIES_OF_A_KIND = 15
REQUEST_TIMEOUT = aiohttp.ClientTimeout(sock_connect=10, sock_read=60)


async def rehearse(folder: Path, seed: int) -> int:
    """Run the rehearsal, and return the exit code."""
    following = folder / "next"
    build_next_version(following)
    answers = Answers()
    async with (
        run_stack(folder / "data", ui=False, for_tests=True) as stack,
        running_deployment(stack, "template0", {}, running_versions) as deployment,
    ):
        verdicts = await _roll_in_and_back(deployment, following, folder, answers, seed)
    say(f"{answers.total} requests, {answers.unavailable} refused")
    for refusal in answers.refusals:
        say(f"           {refusal}")
    failed = print_verdicts(verdicts)
    for name, trees in (("before", (ROOT, following)), ("after", (following,))):
        for tree in trees:
            version = NEXT if tree is following else VERSION
            failed |= await _replay(tree, folder / name, f"histories from {name} the new steps, by {version}")
    return int(failed or answers.unavailable > 0)


async def _roll_in_and_back(
    deployment: Deployment, following: Path, folder: Path, answers: Answers, seed: int
) -> dict[str, Verdict]:
    """Replace the processes under load, and return what became of the work."""
    versions = cast("VersionedInstallation", cast("Any", deployment.installation).versions)
    over = asyncio.Event()
    async with aiohttp.ClientSession(
        base_url=deployment.api,
        timeout=REQUEST_TIMEOUT,
        trace_configs=[answers.build_trace()],
        connector=aiohttp.TCPConnector(force_close=True),
    ) as session:
        caller = await make_project(session, {"Authorization": f"Bearer {deployment.installation.admin_key}"})
        loads = build_loads(deployment, caller, seed)
        async with asyncio.TaskGroup() as group:
            for load in loads:
                group.create_task(load.run(over), name=load.name)
            await wait_for_recovery(loads, time.monotonic())
            say(f"{VERSION} runs, and all five systems have done work")
            await versions.migrate(following)
            say(f"the database is migrated to {NEXT}")
            await _replace(versions, loads, following, VERSION, f"{NEXT} is rolled in, with the steps of {VERSION}")
            await _replace(versions, loads, ROOT, "", f"{VERSION} is rolled back")
            await _replace(versions, loads, following, VERSION, f"{NEXT} is rolled in again")
            engine = await deployment.engine()
            await _keep_histories(engine, folder / "before")
            await _replace(versions, loads, following, "", f"{NEXT} takes its own steps")
            over.set()
            say("the work that is under way is finished")
        await _keep_histories(engine, folder / "after")
        [rehearsed] = await deployment.fetch("SELECT count(*) FROM downloads WHERE rehearsed = 'yes'")
        assert rehearsed["count"], "the next version wrote nothing"
        return {load.name: await load.check() for load in loads}


async def _replace(
    versions: VersionedInstallation, loads: Sequence[Load], tree: Path, compatible_with: str, what: str
) -> None:
    """Replace the processes of one host after the other; each system must do work after each."""
    began = time.monotonic()
    for host in HOSTS:
        await versions.stop(host)
        await versions.start(host, tree, compatible_with)
        await wait_for_recovery(loads, time.monotonic())
    say(f"{what}: {time.monotonic() - began:.0f} s")


async def _keep_histories(engine: Client, folder: Path) -> None:
    """Write the histories of the newest workflows of each kind, running ones included."""
    folder.mkdir()
    kept: Counter[str] = Counter()
    async for execution in engine.list_workflows():
        if kept[execution.workflow_type] < HISTORIES_OF_A_KIND:
            kept[execution.workflow_type] += 1
            handle = engine.get_workflow_handle(execution.id, run_id=execution.run_id)
            path = folder / f"{execution.workflow_type}-{kept[execution.workflow_type]}.json"
            path.write_text((await handle.fetch_history()).to_json())
    say(f"{kept.total()} histories of {len(kept)} kinds of workflows are kept")


async def _replay(tree: Path, folder: Path, what: str) -> bool:
    """Replay histories by the code of a tree; return whether one does not."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rehearsal.replaying", str(folder), cwd=tree, env={"PYTHONPATH": str(tree)}
    )
    failed = await process.wait() != 0
    say(f"{what}: {'FAILED' if failed else 'replayed'}")
    return failed


def main(arguments: Sequence[str]) -> int:
    """Rehearse in a folder of its own; after a failure, its logs stay."""
    log.configure_json_logging("ERROR")
    folder = Path(tempfile.mkdtemp(prefix="haulage-rehearsal-"))
    say(f"logs in {folder / 'data' / 'logs'}")
    return asyncio.run(rehearse(folder, int(arguments[0]) if arguments else SEED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
