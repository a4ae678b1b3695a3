"""Ours: an installation that pulls messages or has them pushed, and whose schedule applies them to the modules."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
import msgspec
from temporalio.client import Client, ScheduleOverlapPolicy

from bench import load
from bench.addresses.stream import Sent
from bench.addresses.surroundings import PubSub
from dev.local import LocalInstallation, list_worker_names
from domain.addresses import names
from domain.addresses.messages import Topic
from infra import starts, temporal

ROOT: Final = Path(__file__).parent.parent.parent
SECRET: Final = "bench-" + "0" * 16
PUSH_CONNECTIONS: Final = 256
POLL_SECONDS: Final = 0.1
WAIT_SECONDS: Final = 900.0
REPEAT_EVERY: Final = 19
"""With pushes: every n-th message is sent twice, which is one delivery of twenty."""

_CALLS: Final = re.compile(r'^haulage_service_calls_total\{.*service="module_.*\} ([0-9.e+]+)$', re.MULTILINE)
_ALL: Final = """
    SELECT topic, payload::text FROM (
        SELECT id, topic, payload FROM im_infi_addr_sync_log_his UNION ALL
        SELECT id, topic, payload FROM im_infi_addr_sync_log) AS both_ ORDER BY id
    """
_INTAKE: Final = """
    SELECT count(*) AS messages, extract(epoch FROM max(createdat) - min(createdat))::float8 AS seconds
    FROM im_infi_addr_sync_log
    """
_LAG: Final = """
    SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (
        ORDER BY extract(epoch FROM proc_update_date - published_at)::float8)
    FROM (SELECT proc_update_date, published_at FROM im_infi_addr_sync_log_his ORDER BY id DESC LIMIT $1) AS last
    """
_CYCLES: Final = """
    SELECT count(DISTINCT cycle_id) AS cycles, count(superseded_by) AS superseded
    FROM (SELECT cycle_id, superseded_by FROM im_infi_addr_sync_log_his ORDER BY id DESC LIMIT $1) AS last
    """


class RunFailed(Exception):
    """Messages did not come to their end."""


@dataclass(frozen=True)
class Lag:
    """From publication to the fourth acknowledgement, in seconds."""

    median: float
    p99: float
    oldest: float


@dataclass
class Ours:
    """A running installation, observed from outside."""

    running: LocalInstallation
    engine: Client
    session: aiohttp.ClientSession
    database: asyncpg.Connection[asyncpg.Record]
    folder: Path
    pubsub: PubSub | None
    """Where it pulls; without one it is pushed to."""
    taken: int = 0
    """Different messages that were delivered to it."""

    async def deliver(self, messages: Sequence[Sent]) -> None:
        """Publish messages, or push them; those that are pushed are in the log then."""
        first, self.taken = self.taken, self.taken + len(messages)
        if self.pubsub:
            await self.pubsub.publish(messages)
        else:
            await self._push(first, messages)

    async def wait_until_received(self) -> None:
        """Wait until all that was delivered is in the log."""
        await self._wait_until("SELECT count(*) >= $1 FROM addr_sync_keys", self.taken)

    async def wait_until_done(self) -> None:
        """Wait until all that was delivered is done and in the history."""
        await self._wait_until("SELECT NOT EXISTS (SELECT FROM im_infi_addr_sync_log)")
        await self._wait_until("SELECT count(*) >= $1 FROM im_infi_addr_sync_log_his", self.taken)

    async def pause(self) -> None:
        """Let no cycle begin, and wait for the end of a run that loads once more after it has emptied the log."""
        schedule = self.engine.get_schedule_handle(names.CYCLE_SCHEDULE)
        await starts.set_schedule_paused(schedule, "filling the log", is_paused=True)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if not (await schedule.describe()).info.running_actions:
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def resume(self) -> None:
        """Let a cycle begin now."""
        schedule = self.engine.get_schedule_handle(names.CYCLE_SCHEDULE)
        await starts.set_schedule_paused(schedule, "the log is filled", is_paused=False)
        # Not SKIP: a run that found the schedule paused may be about to end.
        await schedule.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)

    async def intake(self) -> tuple[int, float]:
        """The messages of the log, and the seconds from the first one's arrival there to the last one's."""
        row = await self.database.fetchrow(_INTAKE)
        assert row  # noqa: S101 - an aggregate has one
        return row["messages"], row["seconds"]

    async def lag(self, messages: int) -> Lag:
        """Of the last messages that came."""
        return Lag(*await self.database.fetchval(_LAG, messages))

    async def cycles(self, messages: int) -> tuple[int, int]:
        """In how many cycles the last messages that came were done, and how many of them a later one made needless."""
        row = await self.database.fetchrow(_CYCLES, messages)
        assert row  # noqa: S101 - an aggregate has one
        return row["cycles"], row["superseded"]

    async def messages(self) -> list[Sent]:
        """All that ever came, in the log's order."""
        return [(Topic(topic), msgspec.json.decode(said)) for topic, said in await self.database.fetch(_ALL)]

    async def events(self, workflow: str) -> list[int]:
        """How many events each run of a workflow has in its history."""
        runs = self.engine.list_workflows(f"WorkflowType = '{workflow}'")
        return [(await self._handle(run.id, run.run_id).describe()).history_length async for run in runs]

    async def calls(self) -> int:
        """Calls to modules until now, lookups and repetitions included, as the workers' metrics count them."""
        total = 0.0
        for name in list_worker_names():
            async with self.session.get(f"{self.running.stack.addresses[name]}/metrics") as answer:
                total += sum(float(each) for each in _CALLS.findall(await answer.text()))
        return int(total)

    def _handle(self, workflow_id: str, run_id: str) -> Any:
        return self.engine.get_workflow_handle(workflow_id, run_id=run_id)

    async def _push(self, first: int, messages: Sequence[Sent]) -> None:
        asked, answered = self.folder / "pushes", self.folder / "answers"
        with asked.open("w") as lines:
            for number, (topic, said) in enumerate(messages, first):
                line = json.dumps(["POST", f"/v1/addresses/events/{topic}?token={SECRET}", _envelope(number, said)])
                lines.write(f"{line}\n" * (2 if number % REPEAT_EVERY == 0 else 1))
        plan = load.Plan(
            base=self.running.api, headers={}, requests=asked, answers=answered, connections=PUSH_CONNECTIONS
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.load"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate(plan.model_dump_json().encode())
        if process.returncode:
            raise RunFailed(f"bench.load ended with {process.returncode}; its error is printed above")
        statuses = load.Report.model_validate_json(output).statuses
        if set(statuses) != {204}:
            raise RunFailed(f"pushes were answered with {statuses}: {answered.read_bytes()[:500]!r}")

    async def _wait_until(self, question: str, *arguments: object) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    if await self.database.fetchval(question, *arguments):
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            left = await self.database.fetch(
                "SELECT topic, proc_flag, count(*) FROM im_infi_addr_sync_log GROUP BY topic, proc_flag"
            )
            raise RunFailed(f"Not so after {WAIT_SECONDS:g} s: {question}. The log holds {left}.") from None


@asynccontextmanager
async def connect(running: LocalInstallation, folder: Path, pubsub: PubSub | None) -> AsyncIterator[Ours]:
    """Connections to an installation."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        engine = await temporal.connect(running.stack.build_environment())
        database = await asyncpg.connect(build_database_address(running))
        stack.push_async_callback(database.close)
        yield Ours(running, engine, session, database, folder, pubsub)


def build_database_address(running: LocalInstallation) -> str:
    """Return the address of the installation's database, for drivers that know no dialects."""
    return running.settings.database.url.get_secret_value().replace("+asyncpg", "")


def _envelope(number: int, said: dict[str, Any]) -> dict[str, Any]:
    data = b64encode(msgspec.json.encode(said)).decode()
    message = {"data": data, "messageId": str(10**15 + number), "publishTime": datetime.now(UTC).isoformat()}
    return {"message": message, "subscription": "bench"}
