"""What all contenders find: four modules, each a process whose addresses begin alike, and a Pub/Sub."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import aiohttp
import msgspec
import psutil

from bench.addresses.stream import Address, Sent, Stream
from bench.processor import sum_cpu_seconds
from domain.addresses.messages import Topic
from infra.address_settings import SubscriptionSettings
from sims.oss.scenario import MODULES
from sims.oss.server import TOKEN
from sims.pubsub.scenario import Scenario

ROOT: Final = Path(__file__).parent.parent.parent
BUSY_MODULES: Final = ("wfm", "od")
PROJECT: Final = "bench"
PUBLISH_MESSAGES: Final = 500
SUBSCRIPTIONS: Final = {
    Topic.SWAP: SubscriptionSettings().swap,
    Topic.CREATE_UPDATE: SubscriptionSettings().create_update,
    Topic.DELETE: SubscriptionSettings().delete,
}


class Content(msgspec.Struct):
    """What a module has."""

    live: dict[int, Address]
    """By UPRN."""
    busy: set[int] = set()
    """Ids of addresses with orders in flight."""


@dataclass(frozen=True)
class ModuleProcesses:
    """Four running modules."""

    bases: Mapping[str, str]
    _pids: Sequence[int]

    def cpu_seconds(self) -> float:
        """What they have used until now."""
        return sum(sum_cpu_seconds(psutil.Process(pid)) for pid in self._pids)

    def live(self) -> dict[str, dict[int, Address]]:
        """The live addresses of each, by UPRN."""
        return {name: _read_live(base) for name, base in self.bases.items()}


def build_tables(folder: Path, stream: Stream) -> Path:
    """A folder with what each module has before any contender: a file of JSON for each."""
    folder.mkdir()
    for name in MODULES:
        content = Content(stream.before, stream.busy if name in BUSY_MODULES else set())
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(content))
    return folder


@asynccontextmanager
async def running_modules(tables: Path) -> AsyncIterator[ModuleProcesses]:
    """Each in a process of its own, with these tables in its memory."""
    async with AsyncExitStack() as stack:
        bases: dict[str, str] = {}
        pids: list[int] = []
        for name in MODULES:
            running = _process("bench.addresses.module", str(tables / f"{name}.json"))
            base, pid = await stack.enter_async_context(running)
            bases[name] = f"{base}/{name}"
            pids.append(pid)
        yield ModuleProcesses(bases, pids)


def decode_content(content: bytes) -> Content:
    """Return what a module had when it wrote this."""
    return msgspec.json.decode(content, type=Content)


def _read_live(base: str) -> dict[int, Address]:
    with urlopen(f"{base}/content") as answer:  # noqa: S310 - of a module that was started here
        return decode_content(answer.read()).live


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


def write_credentials(folder: Path, name: str) -> None:
    """A file with what the modules want to see."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"token": TOKEN}))


def _build_topic(topic: Topic) -> str:
    return f"projects/{PROJECT}/topics/{topic}"


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
