"""Records histories of real runs for the replay tests: `python -m tests.replay.record` on a machine with the parts.

It records all rooms, or those that it is given: `python -m tests.replay.record webhooks`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cli import process
from tests.replay.recorder import recording
from tests.replay.rooms import cycles, downloads, housekeeping, intake, orders, tasks, transfers, upkeep, webhooks

ROOMS = {
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


async def record(names: Sequence[str]) -> None:
    """Record these rooms one after the other, in one house."""
    rooms = [ROOMS[name] for name in names]
    variables = {name: value for room in rooms for name, value in room.VARIABLES.items()}
    async with recording(variables) as recorder:
        for room in rooms:
            await room.record(recorder)
    if orders in rooms:
        async with recording(variables, orders.EVENTS_MAX) as recorder:
            await orders.record_continued(recorder)
    if cycles in rooms:
        async with recording(variables, cycles.EVENTS_MAX) as recorder:
            await cycles.record_continued(recorder)
    if tasks in rooms:
        async with recording(variables, tasks.EVENTS_MAX) as recorder:
            await tasks.record_continued(recorder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", choices=ROOMS, default=list(ROOMS))
    process.run(record(parser.parse_args().rooms))
