"""What all contenders find: four modules, each a process with tables that begin alike, and a Pub/Sub."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import psutil

from bench.addresses.stream import Address, Sent, Stream
from bench.usage import sum_cpu_seconds
from domain.addresses.messages import Topic
from infra.address_settings import SubscriptionSettings
from sims.oss.module import OssModule
from sims.oss.scenario import MODULES
from sims.oss.server import TOKEN
from sims.pubsub.scenario import Scenario

ROOT: Final = Path(__file__).parent.parent.parent
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it
MODULES_FOLDER: Final = MEMORY if MEMORY.is_dir() else None
"""Where the modules' tables lie: in memory if there is such a folder, so that disks measure nothing."""
BUSY_MODULES: Final = ("wfm", "od")
PROJECT: Final = "bench"
PUBLISH_MESSAGES: Final = 500
SUBSCRIPTIONS: Final = {
    Topic.SWAP: SubscriptionSettings().swap,
    Topic.CREATE_UPDATE: SubscriptionSettings().create_update,
    Topic.DELETE: SubscriptionSettings().delete,
}

_RECORD: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class ModuleProcesses:
    """Four running modules."""

    bases: Mapping[str, str]
    _tables: Mapping[str, OssModule]
    _pids: Sequence[int]

    def cpu_seconds(self) -> float:
        """What they have used until now."""
        return sum(sum_cpu_seconds(psutil.Process(pid)) for pid in self._pids)

    def live(self) -> dict[str, dict[int, Address]]:
        """The live addresses in the tables of each, by UPRN."""
        return {name: _live(module) for name, module in self._tables.items()}


def build_tables(folder: Path, stream: Stream) -> Path:
    """A folder with the tables as every contender finds them."""
    folder.mkdir()
    rows = [
        (uprn, address_id, msgspec.json.encode(record).decode()) for uprn, (address_id, record) in stream.before.items()
    ]
    for name in MODULES:
        module = _open_module(folder, name)
        with closing(module.connect()) as connection:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO haulage_addresses (uprn, address_id, record) VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if name in BUSY_MODULES:
            module.begin_orders(stream.busy)
    return folder


@asynccontextmanager
async def running_modules(tables: Path) -> AsyncIterator[ModuleProcesses]:
    """Each in a process and a folder of its own, with a copy of these tables."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MODULES_FOLDER)))
        bases: dict[str, str] = {}
        found: dict[str, OssModule] = {}
        pids: list[int] = []
        for name in MODULES:
            folder = _copy_tables(tables, home, name)
            base, pid = await stack.enter_async_context(_process("sims.oss", "--folder", str(folder)))
            bases[name] = f"{base}/{name}"
            found[name] = _open_module(folder, name)
            pids.append(pid)
        yield ModuleProcesses(bases, found, pids)


@dataclass(frozen=True)
class PubSub:
    """A running Pub/Sub with the three topics."""

    base: str
    _session: aiohttp.ClientSession

    async def publish(self, messages: Sequence[Sent]) -> None:
        """Publish in this order, as fast as it goes."""
        waiting: dict[Topic, list[bytes]] = {topic: [] for topic in Topic}
        for topic, said in messages:
            waiting[topic].append(msgspec.json.encode(said))
            if len(waiting[topic]) == PUBLISH_MESSAGES:
                await self._publish(topic, waiting[topic])
                waiting[topic] = []
        for topic, rest in waiting.items():
            if rest:
                await self._publish(topic, rest)

    async def _publish(self, topic: Topic, payloads: Sequence[bytes]) -> None:
        body = {"messages": [{"data": b64encode(each).decode()} for each in payloads]}
        await self._send("POST", f"{_build_topic(topic)}:publish", body)

    async def begin(self, scenario: Scenario) -> None:
        """Make topics and subscriptions."""
        for topic, name in SUBSCRIPTIONS.items():
            await self._send("PUT", _build_topic(topic), {})
            subscription = {"topic": _build_topic(topic), "ackDeadlineSeconds": 60}
            await self._send("PUT", f"projects/{PROJECT}/subscriptions/{name}", subscription)
        async with self._session.put(f"{self.base}/_sim/scenario", data=scenario.model_dump_json()) as answer:
            answer.raise_for_status()

    async def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        async with self._session.request(method, f"{self.base}/v1/{path}", data=msgspec.json.encode(body)) as answer:
            answer.raise_for_status()


@asynccontextmanager
async def running_pubsub(repeated: float) -> AsyncIterator[PubSub]:
    """In a process of its own; this share of the messages comes twice."""
    async with _process("sims.pubsub") as (base, _), aiohttp.ClientSession() as session:
        pubsub = PubSub(base, session)
        await pubsub.begin(Scenario(duplicate=repeated))
        yield pubsub


def _live(module: OssModule) -> dict[int, Address]:
    with closing(module.connect()) as connection:
        rows = connection.execute("SELECT uprn, address_id, record FROM haulage_addresses")
        return {uprn: (address_id, _RECORD.decode(record)) for uprn, address_id, record in rows}


def write_credentials(folder: Path, name: str) -> None:
    """A file with what the modules want to see."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"token": TOKEN}))


def _build_topic(topic: Topic) -> str:
    return f"projects/{PROJECT}/topics/{topic}"


def _copy_tables(tables: Path, home: Path, name: str) -> Path:
    """A folder with the tables of one module."""
    folder = home / name
    folder.mkdir()
    for file in tables.glob(f"{name}.sqlite*"):
        shutil.copy(file, folder)
    return folder


def _open_module(folder: Path, name: str) -> OssModule:
    return OssModule(name, folder / f"{name}.sqlite", TOKEN)


@asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[tuple[str, int]]:
    """A stand-in in a process of its own, so that who asks is not slowed by who answers: its address and its id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout  # noqa: S101 - it was asked for
        yield json.loads(await process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        await process.wait()
