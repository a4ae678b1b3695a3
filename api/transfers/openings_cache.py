"""What is opened for each project, read at most once a second: a join asks for it, and must not pay for it."""

from __future__ import annotations

import time
from collections.abc import Collection

from api.together import Together
from api.transfers.kept import Kept
from domain.transfers import openings as rules
from domain.transfers.openings import Opening
from domain.transfers.request import File
from services.services import Services
from stores.transfers import openings

FRESH_SECONDS = 1.0


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
        async with self._database.session() as session:
            own = await openings.list_of_project(session, project_id)
            opened = own if own or await openings.is_any(session) else None
        self._known.keep(project_id, (asked_at, opened))
        return opened
