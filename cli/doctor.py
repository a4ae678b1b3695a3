"""`haulage doctor`: checks of the components, one line each, with what to do about a failure."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from rich.console import Console
from rich.text import Text
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

from infra import temporal
from infra.database import DATABASE_ERRORS, Database
from infra.objects import ObjectStore, StoreFailure
from infra.settings import Settings
from stores import migrate
from workflows import systems

PROBE_KEY = ".doctor"
FREE_BYTES_MIN = 2 * 1024**3
CLOCK_SKEW_MAX_SECONDS = 2.0
LIBRARIES = ("temporalio", "aiohttp", "sqlmodel", "minio", "pyarrow")


class CheckFailed(Exception):
    """A failed check: what was found, and the remedy."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{_end_sentence(found)} {remedy}".rstrip())


Check = Callable[[Settings], Awaitable[str]]


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check: what was found, with the remedy where it failed."""

    name: str
    ok: bool
    found: str


async def run_checks(settings: Settings, components: str, *, as_json: bool = False) -> int:
    """Run every check and print a line for each, or all as one JSON object; return 0 if all succeed, else 1.

    Args:
        settings: The addresses of the components.
        components: What is checked, for the first line.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    results: list[CheckResult] = []
    if not as_json:
        console.print(f"Looking at {components}.")
    async for result in _iterate_results(settings):
        results.append(result)
        if not as_json:
            mark = ("ok   ", "green") if result.ok else ("wrong", "red")
            console.print(Text.assemble(mark, f" {result.name:<9} {result.found}"))
    ok = all(result.ok for result in results)
    if as_json:
        document = {"components": components, "ok": ok, "checks": [asdict(result) for result in results]}
        console.print(json.dumps(document, ensure_ascii=False, indent=2))
    return 0 if ok else 1


async def _iterate_results(settings: Settings) -> AsyncIterator[CheckResult]:
    checks: dict[str, Check] = {
        "engine": _check_engine,
        "workers": _check_workers,
        "database": _check_database,
        "bucket": _check_bucket,
        "clock": _check_clock,
        "versions": _list_versions,
        "disk": _check_disk,
    }
    for name, check in checks.items():
        try:
            yield CheckResult(name, ok=True, found=await check(settings))
        except CheckFailed as error:
            yield CheckResult(name, ok=False, found=str(error))


async def _connect_engine() -> Client:
    try:
        return await temporal.connect()
    except RuntimeError as error:
        raise CheckFailed(str(error), "Start Temporal, or set TEMPORAL_ADDRESS to where it runs.") from error


async def _check_engine(settings: Settings) -> str:
    client = await _connect_engine()
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    missing = await temporal.missing_search_attributes(client)
    if missing:
        raise CheckFailed(f"Search attributes are missing: {', '.join(missing)}.", "Run `haulage migrate`.")
    return f"Temporal {info.server_version}, namespace {client.namespace}"


async def _check_workers(settings: Settings) -> str:
    """Check that workers poll every queue in which work waits."""
    client = await _connect_engine()
    waiting: list[str] = []
    served: list[str] = []
    queues = sorted({queue for names in systems.list_names() for queue in names.QUEUES})
    for queue in queues:
        kinds = (temporal.WORKFLOW_QUEUE, temporal.ACTIVITY_QUEUE)
        answers = [await temporal.describe_queue(client, queue, kind) for kind in kinds]
        if any(temporal.list_workers(answer) for answer in answers):
            served.append(queue)
        elif backlog := sum(answer.stats.approximate_backlog_count for answer in answers):
            waiting.append(f"{queue} ({backlog})")
    if waiting:
        raise CheckFailed(
            f"Work waits in queues that no worker polls: {', '.join(waiting)}.",
            f"Start `haulage worker --queues {waiting[0].partition(' ')[0]}`.",
        )
    idle = [queue for queue in queues if queue not in served]
    return f"poll {len(served)} of {len(queues)} queues" + (f"; no work waits in {', '.join(idle)}" if idle else "")


async def _check_database(settings: Settings) -> str:
    async with _open_database(settings) as database:
        await migrate.require_head(database)
        server = await database.server_version()
    return f"PostgreSQL {server}, at this version's revision"


async def _check_bucket(settings: Settings) -> str:
    try:
        store = ObjectStore(settings.objects)
        try:
            await store.put(PROBE_KEY, b"well")
            await store.delete(PROBE_KEY)
        finally:
            await store.close()
    except (StoreFailure, ValueError) as error:
        raise CheckFailed(
            str(error), "Correct HAULAGE_OBJECTS__…, or run `haulage migrate` to create the bucket."
        ) from error
    return f"{settings.objects.bucket} at {settings.objects.endpoint} can be written"


async def _check_clock(settings: Settings) -> str:
    async with _open_database(settings) as database:
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


def _end_sentence(found: str) -> str:
    """Return a message of a library with its full stop."""
    return found if found.endswith((".", "!", "?")) else f"{found}."


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[Database]:
    database = Database(settings.database)
    try:
        yield database
    except migrate.WrongRevision as error:
        raise CheckFailed(str(error), "") from error
    except DATABASE_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise CheckFailed(
            f"PostgreSQL does not answer: {reason}", "Start it, or correct HAULAGE_DATABASE__URL."
        ) from error
    finally:
        await database.close()


async def _list_versions(settings: Settings) -> str:
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
