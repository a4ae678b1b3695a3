"""`haulage doctor`: checks of the components, one line each, with what to do about a failure."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.text import Text
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

from cli import outside_checks, secrets
from cli.outside_checks import (
    CheckFailed,
    CheckPassedWithWarning,
    connect_engine_for_check,
    open_database_for_check,
)
from domain.faults import Fault
from infra import outages, temporal
from infra.objects import ObjectStore, StoreFailure
from infra.settings import Settings
from stores import migrate, payload_keys, worker_heartbeats
from workflows import systems

NAMED_SECONDS = 3_600.0
"""How long a silent worker process is named where others serve its queues."""
PROBE_KEY = ".doctor"
ANSWER_SECONDS = 12.0
"""All checks run at once, and what has not answered by then hangs."""
ORDERLY_SECONDS = 3.0
"""What is known by then is told in the order of the checks; the rest as it becomes known."""
HANGS_HINT = "It hangs, or its address is wrong: look at its log and its load, or restart it."
FREE_BYTES_MIN = 2 * 1024**3
CLOCK_SKEW_MAX_SECONDS = 2.0
LIBRARIES = ("temporalio", "aiohttp", "sqlmodel", "minio", "pyarrow")


Check = Callable[[Settings], Coroutine[Any, Any, str]]


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check: what was found, with the remedy where it failed."""

    name: str
    ok: bool
    found: str
    look: bool = False
    """Whether a person should look although it is well."""


async def run_and_print_checks(settings: Settings, components: str, *, as_json: bool = False) -> int:
    """Run every check and print a line for each, or all as one JSON object; return 0 if all succeed, else 1.

    Args:
        settings: The addresses of the components.
        components: What is checked, for the first line.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    results: list[CheckResult] = []
    if not as_json:
        console.print(f"Looking at {components}.")
    async for result in iterate_check_results(settings):
        results.append(result)
        if not as_json:
            mark = ("wrong", "red") if not result.ok else ("look ", "yellow") if result.look else ("ok   ", "green")
            console.print(Text.assemble(mark, f" {result.name:<9} {result.found}"))
    ok = all(result.ok for result in results)
    if as_json:
        document = {"components": components, "ok": ok, "checks": [asdict(result) for result in results]}
        console.print(json.dumps(document, ensure_ascii=False, indent=2))
    return 0 if ok else 1


async def iterate_check_results(settings: Settings, names: Collection[str] = ()) -> AsyncIterator[CheckResult]:
    """Yield the outcome of each check, or of the named ones only, as it becomes known."""
    checks: dict[str, Check] = {
        "engine": _require_search_attributes_and_format_engine_version,
        "workers": _check_queues_are_served,
        "skew": _check_worker_versions,
        "database": _check_database,
        "bucket": _check_bucket,
        "platforms": outside_checks.check_stored_health_of_platforms,
        "receivers": outside_checks.require_no_long_failing_receivers,
        "modules": outside_checks.check_modules,
        "gse": outside_checks.check_gse,
        "pubsub": outside_checks.check_pubsub,
        "tls": outside_checks.check_certificates,
        "secrets": secrets.check_secrets,
        "clock": _check_clock,
        "versions": _list_library_versions,
        "disk": _check_disk,
    }
    tasks = {name: asyncio.create_task(check(settings)) for name, check in checks.items() if not names or name in names}
    until = time.monotonic() + ANSWER_SECONDS
    # Not `timeout`: the call of a store that hangs waits for its thread when it is cancelled, for minutes.
    await asyncio.wait(tasks.values(), timeout=ORDERLY_SECONDS)
    while tasks:
        for name, task in list(tasks.items()):
            if task.done():
                del tasks[name]
                yield _build_result(name, task)
        if tasks and time.monotonic() >= until:
            break
        if tasks:
            left = max(0.0, until - time.monotonic())
            await asyncio.wait(tasks.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
    for name, task in tasks.items():
        task.cancel()
        yield CheckResult(name, ok=False, found=f"There was no answer within {ANSWER_SECONDS:.0f} s. {HANGS_HINT}")


def _build_result(name: str, task: asyncio.Task[str]) -> CheckResult:
    try:
        found = task.result()
    except CheckFailed as error:
        return CheckResult(name, ok=False, found=str(error))
    except Exception as error:
        if (sentence := outages.describe_expected_failure(error)) is None:
            raise
        return CheckResult(name, ok=False, found=str(CheckFailed(sentence, HANGS_HINT)))
    return CheckResult(name, ok=True, found=found, look=isinstance(found, CheckPassedWithWarning))


async def _require_search_attributes_and_format_engine_version(settings: Settings) -> str:
    client = await connect_engine_for_check()
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    missing = await temporal.list_missing_search_attributes(client)
    if missing:
        raise CheckFailed(f"Search attributes are missing: {', '.join(missing)}.", "Run `haulage migrate`.")
    return f"Temporal {info.server_version}, namespace {client.namespace}"


async def _check_queues_are_served(settings: Settings) -> str:
    """Check that a worker answers at every queue in which work waits, and at each that a silent worker served."""
    client = await connect_engine_for_check()
    async with open_database_for_check(settings) as database:
        heartbeats = await worker_heartbeats.list_heartbeats(database)
    answering = {each.identity for each in heartbeats if not each.is_silent}
    silent = {queue for each in heartbeats if each.is_silent for queue in each.queues}
    waiting, lost, idle = list[str](), list[str](), list[str]()
    queues = sorted({queue for names in systems.import_names_modules() for queue in names.QUEUES})
    for queue in queues:
        kinds = (temporal.WORKFLOW_QUEUE, temporal.ACTIVITY_QUEUE)
        answers = [await temporal.describe_queue(client, queue, kind) for kind in kinds]
        if any(temporal.list_polling_workers(answer) & answering for answer in answers):
            continue
        if queue in silent:
            lost.append(queue)
        elif backlog := sum(answer.stats.approximate_backlog_count for answer in answers):
            waiting.append(f"{queue} ({backlog})")
        else:
            idle.append(queue)
    if lost:
        seconds = min(each.silent_seconds for each in heartbeats if each.is_silent and lost[0] in each.queues)
        raise CheckFailed(
            f"Workers hang or were killed, and these queues have no other: {', '.join(lost)}. "
            f"The last answered {seconds:.0f} s ago.",
            "Restart them.",
        )
    if waiting:
        raise CheckFailed(
            f"Work waits in queues that no worker serves: {', '.join(waiting)}.",
            f"Start `haulage worker --queues {waiting[0].partition(' ')[0]}`.",
        )
    served = f"answer at {len(queues) - len(idle)} of {len(queues)} queues"
    served += f"; no work waits in {', '.join(idle)}" if idle else ""
    # One that was killed and has been replaced is named for a while, too: it may come back.
    recent = [each for each in heartbeats if each.is_silent and each.silent_seconds < NAMED_SECONDS]
    if not recent:
        return served
    named = ", ".join(f"{each.identity} (silent for {each.silent_seconds:.0f} s)" for each in recent)
    return CheckPassedWithWarning(
        f"{served}. Others hang or were killed, and their queues have another: {named}. Restart them."
    )


async def _check_worker_versions(settings: Settings) -> str:
    """Check that all workers that poll have this version."""
    client = await connect_engine_for_check()
    others: dict[str, set[str]] = defaultdict(set)
    for queue in sorted({queue for names in systems.import_names_modules() for queue in names.QUEUES}):
        for kind in (temporal.WORKFLOW_QUEUE, temporal.ACTIVITY_QUEUE):
            answer = await temporal.describe_queue(client, queue, kind)
            for build_id in temporal.list_polling_build_ids(answer) - {temporal.BUILD_ID}:
                others[build_id].add(queue)
    if others:
        found = "; ".join(f"{build} polls {', '.join(sorted(queues))}" for build, queues in sorted(others.items()))
        raise CheckFailed(f"Workers have another version than {temporal.BUILD_ID}: {found}.", "Restart them.")
    return f"all workers that poll are {temporal.BUILD_ID}"


async def _check_database(settings: Settings) -> str:
    async with open_database_for_check(settings) as database:
        await migrate.require_supported_revision(database)
        await payload_keys.require_all_used_payload_keys(database, settings)
        server = await database.read_server_version()
    return f"PostgreSQL {server}, at this version's revision"


async def _check_bucket(settings: Settings) -> str:
    try:
        store = ObjectStore(settings.objects)
        try:
            await store.put(PROBE_KEY, b"well")
            await store.delete(PROBE_KEY)
        finally:
            await store.close()
    except Fault as fault:
        raise CheckFailed(fault.record.message, fault.record.hint) from fault
    except StoreFailure as error:
        raise CheckFailed(
            str(error), "Correct HAULAGE_OBJECTS__…, or run `haulage migrate` to create the bucket."
        ) from error
    return f"{settings.objects.bucket} at {settings.objects.endpoint} can be written"


async def _check_clock(settings: Settings) -> str:
    async with open_database_for_check(settings) as database:
        # The first call opens the connection, so that the second measures the clock and not the connection.
        await database.now()
        before = datetime.now(UTC)
        database_time = await database.now()
        after = datetime.now(UTC)
    skew = max((before - database_time).total_seconds(), (database_time - after).total_seconds(), 0.0)
    if skew > CLOCK_SKEW_MAX_SECONDS:
        raise CheckFailed(
            f"This clock and the database's differ by {skew:.1f} s.",
            "Keep both with NTP: links and windows depend on it.",
        )
    return f"at most {(skew + (after - before).total_seconds()) * 1000:.0f} ms from the database's"


async def _list_library_versions(settings: Settings) -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])


async def _check_disk(settings: Settings) -> str:
    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES_MIN:
        raise CheckFailed(
            f"{free / 1024**3:.1f} GiB are free in {folder}.",
            f"Free some space: at least {FREE_BYTES_MIN / 1024**3:.0f} GiB are needed.",
        )
    return f"{free / 1024**3:.0f} GiB free in {folder}"
