"""`python -m sims.pubsub`: a stand-in Pub/Sub as a process."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sims import process
from sims.pubsub.broker import Broker
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import running_pubsub


def main() -> None:
    """Print the address as one JSON line, then serve until a signal comes or the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--scenario", default="{}", help="JSON, see sims/pubsub/scenario.py")
    given = parser.parse_args()

    @asynccontextmanager
    async def running() -> AsyncIterator[str]:
        broker = Broker(Scenario.model_validate_json(given.scenario))
        async with running_pubsub(broker, given.port) as sim:
            yield sim.base

    asyncio.run(process.serve(running()))


if __name__ == "__main__":
    main()
