"""Pauses of whole systems, and what is known of any pause: by whom, since when and why; a system without a row runs."""

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
class PauseRecord:
    """That a system, or a part of one, is paused."""

    paused_at: datetime | None
    """None where it is not known."""
    who: str
    reason: str
    """Empty where none was given."""

    def describe(self, subject: str) -> str:
        """Return a sentence about who is paused, such as "Tasks are", since when, by whom and why."""
        since = self.paused_at and f" since {self.paused_at.isoformat(timespec='seconds')}"
        return f"{subject} paused{since or ''} by {self.who}{': ' if self.reason else ''}{self.reason.rstrip('.')}."


def build_task_type_subject(type_: str) -> str:
    """Return the name under which the pause of a type of tasks is kept beside those of systems."""
    return f"tasks/{type_}"


async def save_pause(database: Database, system: str, who: str, reason: str) -> None:
    """Pause a system, or keep who paused a type of tasks and why."""
    async with database.connection() as connection:
        await connection.execute(_PAUSE, system, who, reason)


async def delete_pause(database: Database, system: str) -> None:
    """Resume a system; one that runs goes on."""
    async with database.connection() as connection:
        await connection.execute(_RESUME, system)


async def list_pauses_by_subject(database: Database) -> Mapping[str, PauseRecord]:
    """Return the pauses of systems and of types of tasks, by name."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LIST)
    return {row["system"]: PauseRecord(row["paused_at"], row["who"], row["reason"]) for row in rows}


async def is_system_paused(database: Database, system: str) -> bool:
    """Return whether a system is paused."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_FIND, system))
