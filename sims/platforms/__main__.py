"""`python -m sims.platforms`: order platforms as a process."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sims import process
from sims.platforms.server import running_platforms


@asynccontextmanager
async def _address(port: int) -> AsyncIterator[str]:
    async with running_platforms(port) as platforms:
        yield platforms.base


def main() -> None:
    """Print the address as one JSON line, then serve until a signal comes or the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    asyncio.run(process.serve(_address(parser.parse_args().port)))


if __name__ == "__main__":
    main()
