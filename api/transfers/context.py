"""The routes of transfers, and the state of this process that their handlers share."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
import time
from collections.abc import Collection

from aiohttp import web

from api.http.routes import Call, Routes
from api.shared_reads import CoalescedRead
from api.transfers.joins import Joins
from api.transfers.lookup import BoundedCache, CollectingJobs, TransferLookup
from domain.faults import Missing
from domain.transfers import names
from domain.transfers import openings as rules
from domain.transfers.models import File
from domain.transfers.names import Job, Task
from domain.transfers.openings import Opening
from services.services import Services
from stores.transfers import openings

_PURPOSE = b"haulage transfer task 1"
_SALTS = 2**names.SALT_BITS


class TransferContext:
    """What this process knows of transfers: who is about to join and may, where jobs stand, and how ids are made."""

    def __init__(self, services: Services) -> None:
        self.joins = Joins(services)
        self.lookup = TransferLookup(services)
        self.listing = CollectingJobs(services)
        self.openings = OpeningsCache(services)
        self.window_seconds = services.settings.transfers.window_seconds
        pepper = services.settings.secrets.pepper.get_secret_value().encode()
        self._secret = hmac.digest(pepper, _PURPOSE, hashlib.sha256)
        # Requests for one target get different ids: surely within this process, very likely among several.
        self._salts = itertools.count(secrets.randbelow(_SALTS))

    def new_task_id(self, file: File, bucket: int, target_key: int, project_id: str) -> str:
        """An id that nobody has."""
        task = Task(Job(file, bucket), target_key, next(self._salts) % _SALTS)
        return names.write_task(task, self._secret, project_id)

    def task(self, call: Call, task_id: str) -> Task:
        """The task that an id names.

        Raises:
            Missing: We gave no such id to this project.
        """
        task = names.read_task(task_id, self._secret, call.project_id)
        if task is None:
            raise missing("task", "Check the id that POST /v1/transfers answered.")
        return task


CONTEXT = web.AppKey("transfers_desk", TransferContext)


def _attach(app: web.Application, services: Services) -> None:
    app[CONTEXT] = TransferContext(services)


routes = Routes("transfers", "One file goes to many hosts, over GSE.", attach=_attach)


def get_context(call: Call) -> TransferContext:
    """What this process knows of transfers."""
    return call.request.app[CONTEXT]


def missing(what: str, hint: str) -> Missing:
    """What is told of an id that names nothing of this project."""
    return Missing("not_found", f"There is no such {what} for this key.", hint)


FRESH_SECONDS = 1.0


class OpeningsCache:
    """Checks requests against the openings of their project. A change made by another process shows a second later."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._known: BoundedCache[str, tuple[float, list[Opening] | None]] = BoundedCache()
        self._reads = CoalescedRead(self.read)

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
        return await self._reads.get(project_id)

    def forget(self) -> None:
        """Read anew from here on."""
        self._known = BoundedCache()

    async def read(self, project_id: str) -> list[Opening] | None:
        """The same, as the database has it now."""
        asked_at = time.monotonic()
        async with self._database.session() as session:
            own = await openings.list_of_project(session, project_id)
            opened = own if own or await openings.is_any(session) else None
        self._known.keep(project_id, (asked_at, opened))
        return opened
