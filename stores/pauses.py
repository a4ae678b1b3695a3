"""Pauses of whole systems: by whom, since when and why; a system without a row runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from infra.database import Database

# A system that is paused again keeps the time and gets the newer reason.
_PAUSE = """
    INSERT INTO system_pauses (system, who, reason) VALUES ($1, $2, $3)
    ON CONFLICT (system) DO UPDATE SET who = excluded.who, reason = excluded.reason
"""
_RESUME = "DELETE FROM system_pauses WHERE system = $1"
_LIST = "SELECT system, paused_at, who, reason FROM system_pauses"
_FIND = "SELECT EXISTS (SELECT FROM system_pauses WHERE system = $1)"


@dataclass(frozen=True, slots=True)
class SystemPause:
    """That a system is paused."""

    paused_at: datetime
    who: str
    reason: str


async def pause(database: Database, system: str, who: str, reason: str) -> None:
    """Pause a system."""
    async with database.connection() as connection:
        await connection.execute(_PAUSE, system, who, reason)


async def resume(database: Database, system: str) -> None:
    """Resume a system; one that runs goes on."""
    async with database.connection() as connection:
        await connection.execute(_RESUME, system)


async def list_paused(database: Database) -> Mapping[str, SystemPause]:
    """Return the systems that are paused, by name."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST)
    return {row["system"]: SystemPause(row["paused_at"], row["who"], row["reason"]) for row in rows}


async def is_paused(database: Database, system: str) -> bool:
    """Return whether a system is paused."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_FIND, system))
