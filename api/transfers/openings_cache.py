"""What is opened for each project, read at most once a second: a join asks for it, and must not pay for it."""

from __future__ import annotations

import time
from collections.abc import Collection

import asyncpg

from api.together import Together
from api.transfers.kept import Kept
from domain.transfers import openings as rules
from domain.transfers.openings import Opening
from domain.transfers.request import File
from services.services import Services

FRESH_SECONDS = 1.0

_OWN = """
    SELECT biz_id, app_id, path_prefixes, folder_prefixes, users, hosts
    FROM transfer_openings WHERE project_id = $1 ORDER BY id
"""
IS_ANY = "SELECT EXISTS (SELECT FROM transfer_openings)"


class OpeningsCache:
    """Checks requests against the openings of their project. A change made by another process shows a second later."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._known: Kept[str, tuple[float, list[Opening] | None]] = Kept()
        self._reads = Together(self.read)

    async def check(self, project_id: str, file: File, user: str, folder: str, agent_ids: Collection[str]) -> None:
        """Pass if the project may send this, or if nothing is opened for any project.

        Raises:
            Forbidden: Something of it is not opened for this project.
        """
        opened = await self.of(project_id)
        if opened is not None:
            rules.check_opened(opened, file, user, folder, agent_ids)

    async def of(self, project_id: str) -> list[Opening] | None:
        """The openings of a project; None as long as no project has any."""
        known = self._known.get(project_id)
        if known and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        return await self._reads.ask(project_id)

    def forget(self) -> None:
        """Read anew from here on."""
        self._known = Kept()

    async def read(self, project_id: str) -> list[Opening] | None:
        """The same, as the database has it now."""
        asked_at = time.monotonic()
        async with self._database.connection() as connection:
            rows = await connection.fetch(_OWN, project_id)
            is_any = bool(rows) or await connection.fetchval(IS_ANY)
        opened = [read_opening(row) for row in rows] if is_any else None
        self._known.keep(project_id, (asked_at, opened))
        return opened


def read_opening(row: asyncpg.Record) -> Opening:
    """The opening in a row."""
    return Opening(
        biz_id=row["biz_id"],
        app_id=row["app_id"],
        path_prefixes=tuple(row["path_prefixes"]),
        folder_prefixes=tuple(row["folder_prefixes"]),
        users=tuple(row["users"]),
        hosts=tuple(row["hosts"]),
    )
