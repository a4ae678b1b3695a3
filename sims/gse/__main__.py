"""`python -m sims.gse --folder …`: a stand-in GSE as a process."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from sims import process
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseScenario
from sims.gse.server import running_gse
from sims.gse.world import GseWorld


def main() -> None:
    """Print the address as one JSON line, then serve until a signal or until the parent exits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--folder", type=Path, help="where targets get their files; without it they get none")
    parser.add_argument("--links", action="store_true", help="let targets share one file by hard links")
    parser.add_argument("--scenario", default="{}", help="JSON, see sims/gse/scenario.py")
    given = parser.parse_args()

    async def serve() -> None:
        disks = HostDisks(given.folder, links=given.links) if given.folder else None
        world = GseWorld(GseScenario.model_validate_json(given.scenario), disks)
        await process.serve(running_gse(world, given.port))

    asyncio.run(serve())


if __name__ == "__main__":
    main()
