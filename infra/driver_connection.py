"""The driver's connections to PostgreSQL: what they do after a deadlock or a cancellation, or at a silent server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from asyncpg.transaction import Transaction

from infra import log, outages

DEADLOCK_PAUSE_SECONDS = 0.1
"""A transaction that repeats its statement at once takes back the lock that the other has just been promised."""


class DriverConnection(asyncpg.Connection):
    """Repeat a statement that stands alone after a deadlock; break soon where the server was cut off in silence."""

    def __init__(self, protocol: Any, transport: Any, *arguments: Any) -> None:
        super().__init__(protocol, transport, *arguments)
        outages.enable_keepalive_against_silent_peer(transport.get_extra_info("socket"))

    def transaction(self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False) -> Transaction:
        """See base class."""
        return _LeftWhenCancelledTransaction(self, isolation, readonly, deferrable)

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return await self._run_and_retry_deadlock(super().execute, *arguments, **options)

    async def fetch(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return await self._run_and_retry_deadlock(super().fetch, *arguments, **options)

    async def fetchrow(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return await self._run_and_retry_deadlock(super().fetchrow, *arguments, **options)

    async def fetchval(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return await self._run_and_retry_deadlock(super().fetchval, *arguments, **options)

    async def _run_and_retry_deadlock(self, run: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        is_alone = not self.is_in_transaction()
        try:
            return await run(*arguments, **options)
        except asyncpg.DeadlockDetectedError:
            if not is_alone:
                raise
        log.get(__name__).warning("database_deadlock_retried")
        await asyncio.sleep(DEADLOCK_PAUSE_SECONDS)
        return await run(*arguments, **options)


class _LeftWhenCancelledTransaction(Transaction):
    """Send no rollback when the block is cancelled, which would wait for a server that hangs.

    `Database.connection` gives the connection up: that cancels the statement under way, and waits two seconds at most.
    """

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if not isinstance(error, asyncio.CancelledError):
            await super().__aexit__(kind, error, traceback)
