"""A stand-in as a process of its own, which ends with whoever started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager

PARENT_CHECK_SECONDS = 0.5


async def serve(running: AbstractAsyncContextManager[str]) -> None:
    """Print the address as one JSON line, then serve until a signal comes or the parent is gone."""
    parent = os.getppid()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    async with running as base:
        sys.stdout.write(json.dumps({"url": base}) + "\n")
        sys.stdout.flush()
        while not stopped.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(stopped.wait(), PARENT_CHECK_SECONDS)
            except TimeoutError:
                continue
