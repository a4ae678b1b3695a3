"""What runs of load have in common: a project for it, waiting for each system to work again, and the verdicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import aiohttp

from tests.cluster.record import Verdict
from tests.cluster.work import Load
from tests.support.caller import Caller

RECOVERY_SECONDS = 180.0
POLL_SECONDS = 0.2


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


async def make_project(session: aiohttp.ClientSession, headers: Mapping[str, str]) -> Caller:
    """Make a project, and return the caller with its key."""
    caller = Caller(session)
    answer = await caller.call("POST", "/v1/projects", 201, json={"name": "lab"}, headers=headers)
    made = await answer.json()
    session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
    return Caller(session, made["project_id"])


async def wait_for_recovery(loads: Sequence[Load], since: float) -> dict[str, float]:
    """Return when each system ended its first piece of work that began after a moment.

    Raises:
        AssertionError: A system does not work again.
    """
    found: dict[str, float] = {}
    deadline = time.monotonic() + RECOVERY_SECONDS
    while len(found) < len(loads):
        for load in loads:
            if load.name not in found and (at := load.work.find_first_end(since)) is not None:
                found[load.name] = at
        missing = [load.name for load in loads if load.name not in found]
        assert time.monotonic() < deadline, f"{', '.join(missing)} did no work for {RECOVERY_SECONDS:.0f} s"
        await asyncio.sleep(POLL_SECONDS)
    return found


def print_verdicts(verdicts: Mapping[str, Verdict]) -> int:
    """Print what came of the work; return 1 if something was lost or doubled."""
    for system, verdict in verdicts.items():
        say(f"{system:10} accepted {verdict.accepted}, lost {verdict.lost}, doubled {verdict.doubled}")
        for note in verdict.notes[:10]:
            say(f"           {note}")
    return int(any(verdict.lost or verdict.doubled for verdict in verdicts.values()))
