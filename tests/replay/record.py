"""Records histories of real runs for the replay tests: `python -m tests.replay.record` on a machine with the parts.

They go into the folder of the version: those of released versions stay as they are. It records all scenarios, or those
that it is given: `python -m tests.replay.record webhooks`. With `--only` it writes the histories whose names match a
pattern, and no others: `python -m tests.replay.record orders --only 'OrderReportWorkflow/*' '*/continued'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cli import command
from tests.replay.recorder import recording
from tests.replay.scenarios import cycles, downloads, housekeeping, intake, orders, tasks, transfers, upkeep, webhooks

SCENARIOS = {
    "housekeeping": housekeeping,
    "downloads": downloads,
    "webhooks": webhooks,
    "transfers": transfers,
    "orders": orders,
    "intake": intake,
    "upkeep": upkeep,
    "cycles": cycles,
    "tasks": tasks,
}


async def record(names: Sequence[str], only: Sequence[str]) -> None:
    """Record these scenarios one after the other, with one installation."""
    scenarios = [SCENARIOS[name] for name in names]
    variables = {name: value for scenario in scenarios for name, value in scenario.VARIABLES.items()}
    async with recording(variables, only=only) as recorder:
        for scenario in scenarios:
            await scenario.record(recorder)
    for scenario in scenarios:
        if hasattr(scenario, "record_continued"):
            async with recording(variables, scenario.EVENTS_MAX, only) as recorder:
                await scenario.record_continued(recorder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=", ".join(SCENARIOS))
    parser.add_argument("--only", nargs="+", default=["*"], metavar="pattern", help="histories to write: WORKFLOW/WAY")
    given = parser.parse_args()
    command.run_and_exit(record(given.scenarios or list(SCENARIOS), given.only))
