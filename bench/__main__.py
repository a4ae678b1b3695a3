"""`python -m bench [ROOM …]`: measure the rooms, print a table, keep `bench/results/<room>.json`."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

from bench import foundation
from bench.addresses import room as addresses
from bench.downloads import room as downloads
from bench.excel import room as excel
from bench.orders import room as orders
from bench.tasks import room as tasks
from bench.transfers import room as transfers
from cli import process

ROOMS = {
    "foundation": foundation.measure,
    "addresses": addresses.measure,
    "downloads": downloads.measure,
    "excel": excel.measure,
    "orders": orders.measure,
    "tasks": tasks.measure,
    "transfers": transfers.measure,
}


async def main(names: list[str]) -> int:
    """Measure the named rooms, or all."""
    unknown = set(names) - set(ROOMS)
    if unknown:
        print(f"There is no bench for {', '.join(sorted(unknown))}. Choose from {', '.join(ROOMS)}.", file=sys.stderr)
        return 2
    for name in names or ROOMS:
        measuring: Coroutine[Any, Any, None] = ROOMS[name]()
        await measuring
    return 0


if __name__ == "__main__":
    process.run(main(sys.argv[1:]))
