"""`python -m sims source=8091 gse=8093 …`: the stand-ins of a local installation, in one process."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sims import process
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseScenario
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from sims.oss.server import TOKEN, running_oss
from sims.platforms.scenario import Changes, PlatformScenario
from sims.platforms.server import running_platforms
from sims.pubsub.broker import Broker, BrokerSubscription
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import running_pubsub
from sims.repository import running_repository
from sims.source import running_source

PULL_SECONDS = 20.0
ACK_DEADLINE_SECONDS = 10.0
SHOP = PlatformScenario(
    kind="shopify", orders=2_000, span_seconds=7_200, skew_seconds=0, changes=Changes(per_second=1.0, created_share=0.5)
)
"""A shop by the real clock: orders of the last two hours, and one change a second from now on."""


@dataclass(frozen=True)
class Place:
    """Where a stand-in serves and what it keeps.

    Args:
        folder: What it keeps.
        credentials: Where it lays down NAME.json with the credentials that it takes.
        subscriptions: For Pub/Sub: TOPIC=SUBSCRIPTION of its project, by whole names.
    """

    port: int
    folder: Path
    credentials: Path
    subscriptions: Mapping[str, str]

    def write_credentials(self, name: str, content: Mapping[str, str]) -> None:
        """Lay down credentials that only their owner can read."""
        self.credentials.mkdir(parents=True, exist_ok=True)
        path = self.credentials / f"{name}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))


@asynccontextmanager
async def _run_source(place: Place) -> AsyncIterator[None]:
    async with running_source(place.port):
        yield


@asynccontextmanager
async def _run_repository(place: Place) -> AsyncIterator[None]:
    async with running_repository(place.port):
        yield


@asynccontextmanager
async def _run_gse(place: Place) -> AsyncIterator[None]:
    async with running_gse(GseWorld(GseScenario(), HostDisks(place.folder / "hosts", links=True)), place.port):
        yield


@asynccontextmanager
async def _run_platforms(place: Place) -> AsyncIterator[None]:
    async with running_platforms(place.port, place.folder / "platforms.json") as platforms:
        shop = platforms.by_number.get("shop") or platforms.add("shop", SHOP)
        place.write_credentials("shop", dict(shop.credentials))
        yield


@asynccontextmanager
async def _run_pubsub(place: Place) -> AsyncIterator[None]:
    # One that is started again repeats no id: the log would take new messages for repetitions of those before.
    broker = Broker(Scenario(wait_seconds=PULL_SECONDS), first_id=time.time_ns() // 1_000)
    for topic, subscription in place.subscriptions.items():
        broker.add_topic(topic)
        broker.subscribe(BrokerSubscription(subscription, topic, ACK_DEADLINE_SECONDS))
    async with running_pubsub(broker, place.port):
        yield


@asynccontextmanager
async def _run_modules(place: Place) -> AsyncIterator[None]:
    folder = place.folder / "modules"
    folder.mkdir(parents=True, exist_ok=True)
    place.write_credentials("modules", {"token": TOKEN})
    async with running_oss(folder, place.port):
        yield


STAND_INS: Mapping[str, Callable[[Place], AbstractAsyncContextManager[None]]] = {
    "source": _run_source,
    "repository": _run_repository,
    "gse": _run_gse,
    "platforms": _run_platforms,
    "pubsub": _run_pubsub,
    "modules": _run_modules,
}
"""What serves each name that may be given with a port."""


@asynccontextmanager
async def run_all(places: Mapping[str, Place]) -> AsyncIterator[str]:
    """Serve stand-ins while the block runs."""
    async with AsyncExitStack() as running:
        for name, place in places.items():
            await running.enter_async_context(STAND_INS[name](place))
        yield " ".join(f"{name}={place.port}" for name, place in places.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what serves where as one JSON line, then serve until a signal comes or the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", nargs="+", help=f"NAME=PORT, of {', '.join(STAND_INS)}")
    parser.add_argument("--folder", type=Path, required=True, help="what the stand-ins keep")
    parser.add_argument("--credentials", type=Path, required=True, help="where they lay down NAME.json")
    parser.add_argument("--subscription", action="append", default=[], help="TOPIC=SUBSCRIPTION, whole names")
    given = parser.parse_args(arguments)
    subscriptions = dict(each.split("=", 1) for each in given.subscription)
    places = {
        name: Place(int(port), given.folder, given.credentials, subscriptions)
        for name, port in (each.split("=", 1) for each in given.ports)
    }
    asyncio.run(process.serve(run_all(places)))


if __name__ == "__main__":
    main()
