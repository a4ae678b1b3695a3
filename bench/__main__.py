"""`python -m bench [SYSTEM …]`: measure systems, print their figures, write `bench/results/<system>.json`.

`RUNS=3` measures each three times, and records the medians.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

from bench import foundation, payloads
from bench.addresses import benchmark as addresses
from bench.downloads import benchmark as downloads
from bench.excel import benchmark as excel
from bench.orders import benchmark as orders
from bench.tasks import benchmark as tasks
from bench.transfers import benchmark as transfers
from cli import command

RUNS = int(os.environ.get("RUNS", "1"))
BENCHMARKS: dict[str, Callable[[], Awaitable[None]]] = {
    "foundation": foundation.measure,
    "addresses": addresses.measure,
    "downloads": downloads.measure,
    "excel": excel.measure,
    "orders": orders.measure,
    "payloads": payloads.measure,
    "tasks": tasks.measure,
    "transfers": transfers.measure,
}


async def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(
            f"There is no bench for {', '.join(sorted(unknown))}. Choose from {', '.join(BENCHMARKS)}.", file=sys.stderr
        )
        return 2
    for name in names or BENCHMARKS:
        for _ in range(RUNS):
            await BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    command.run_and_exit(main(sys.argv[1:]))
