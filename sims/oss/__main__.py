"""`python -m sims.oss --folder …`: the four modules as a process; their tables are kept in the folder."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sims import process
from sims.oss.scenario import OssScenario
from sims.oss.server import running_oss


@asynccontextmanager
async def _address(folder: Path, port: int, scenario: OssScenario) -> AsyncIterator[str]:
    async with running_oss(folder, port) as oss:
        oss.set(scenario)
        yield oss.base


def main() -> None:
    """Print the address as one JSON line, then serve until a signal or until the parent exits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--folder", type=Path, required=True, help="where the tables are")
    parser.add_argument("--scenario", default="{}", help="JSON, see sims/oss/scenario.py")
    given = parser.parse_args()
    scenario = OssScenario.model_validate_json(given.scenario)
    asyncio.run(process.serve(_address(given.folder, given.port, scenario)))


if __name__ == "__main__":
    main()
