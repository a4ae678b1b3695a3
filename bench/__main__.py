"""`python -m bench [--strict] [SYSTEM …]`: measure systems, print their figures, write `bench/results/<system>.json`.

With --strict the exit code is 1 if a ratio is worse than its committed record by more than a quarter. That is not the
default, because machines of another kind have other ratios.

`RUNS=3` measures each three times, and records the medians.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

from bench import foundation, payloads, report
from bench.addresses import benchmark as addresses
from bench.downloads import benchmark as downloads
from bench.excel import benchmark as excel
from bench.orders import benchmark as orders
from bench.processor import ProcessorReading
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
STRICT = "--strict"


async def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all; return 1 if a ratio fell and --strict is among the arguments."""
    names = [each for each in arguments if each != STRICT]
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(
            f"There is no bench for {', '.join(sorted(unknown))}. Choose from {', '.join(BENCHMARKS)}.", file=sys.stderr
        )
        return 2
    suffix = "-small" if os.environ.get("SIZE") == "small" else ""
    falls = []
    for name in names or BENCHMARKS:
        others = 0.0
        for _ in range(RUNS):
            before = ProcessorReading.take()
            await BENCHMARKS[name]()
            others = max(others, before.count_cores_of_others_until(ProcessorReading.take()))
        report.note_cores_of_others(f"{name}{suffix}", others)
        falls += report.find_falls(f"{name}{suffix}")
    print(f"{len(falls)} ratios are worse than recorded by more than a quarter.")
    return int(STRICT in arguments and bool(falls))


if __name__ == "__main__":
    command.run_and_exit(main(sys.argv[1:]))
