"""Wait for what a test needs, and for no longer: instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from temporalio.service import RPCError, RPCStatusCode

POLL_SECONDS = 0.02
POLL_SHARE = 0.1
"""The longer something takes, the longer it is until it is asked for again: asking costs what the work would need."""
POLL_MAX_SECONDS = 0.5
# A busy machine may take long over what is right; only what never comes is waited for to the end.
PATIENCE_SECONDS = 180.0

T = TypeVar("T")


@overload
async def eventually(predicate: Callable[[], Coroutine[Any, Any, T]], timeout: float = PATIENCE_SECONDS) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], timeout: float = PATIENCE_SECONDS) -> T: ...


async def eventually(predicate: Callable[[], T | Coroutine[Any, Any, T]], timeout: float = PATIENCE_SECONDS) -> T:
    """Ask until the answer is true and return it.

    While the predicate fails an assertion, or asks the engine for what is not there yet, it is asked again too.
    """
    began = time.monotonic()
    while True:
        failed: AssertionError | RPCError | None = None
        answer: T | None = None
        try:
            asked = predicate()
            answer = await asked if inspect.isawaitable(asked) else asked
        except AssertionError as error:
            failed = error
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            failed = error
        if answer:
            return answer
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"not within {timeout} s; the last answer was {answer!r}") from failed
        await asyncio.sleep(max(POLL_SECONDS, min(waited * POLL_SHARE, POLL_MAX_SECONDS)))
