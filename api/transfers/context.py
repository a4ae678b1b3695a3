"""The routes of transfers, and what their handlers share in one process."""

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
from api.transfers.joins import JobJoiner
from api.transfers.lookup import BoundedCache, JobLists, TransferLookup
from domain.faults import Missing
from domain.transfers import names
from domain.transfers import openings as rules
from domain.transfers.models import TransferFile
from domain.transfers.names import TransferJobKey, TransferTaskKey
from domain.transfers.openings import Opening
from services.services import Services
from stores.transfers import openings

OPENINGS_CACHE_SECONDS = 1.0

_PURPOSE = b"haulage transfer task 1"
_SALTS = 2**names.SALT_BITS


class SendPermissionsCache:
    """The openings of projects, cached for a second, because every request to create a transfer needs them."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._cache: BoundedCache[str, tuple[float, list[Opening] | None]] = BoundedCache()
        self._reads = CoalescedRead(self.load)

    async def check(
        self, project_id: str, file: TransferFile, user: str, folder: str, agent_ids: Collection[str]
    ) -> None:
        """Check that the project may send a file to these hosts; everything is allowed while no project has openings.

        Raises:
            Forbidden: The project has no opening for some of it.
        """
        opened = await self.get(project_id)
        if opened is not None:
            rules.check_allowed(opened, file, user, folder, agent_ids)

    async def get(self, project_id: str) -> list[Opening] | None:
        """Return the openings of a project; None while no project has any."""
        cached = self._cache.get(project_id)
        if cached and time.monotonic() - cached[0] < OPENINGS_CACHE_SECONDS:
            return cached[1]
        return await self._reads.get(project_id)

    def invalidate(self) -> None:
        """Load all openings anew."""
        self._cache = BoundedCache()

    async def load(self, project_id: str) -> list[Opening] | None:
        """Load and cache the openings of a project; None while no project has any."""
        loaded_at = time.monotonic()
        async with self._database.session() as session:
            own = await openings.list_for_project(session, project_id)
            opened = own if own or await openings.has_any(session) else None
        self._cache.put(project_id, (loaded_at, opened))
        return opened


class TransferContext:
    """What handlers share: joining, lookups, openings, and the issuing and checking of task ids."""

    def __init__(self, services: Services) -> None:
        self.joiner = JobJoiner(services)
        self.lookup = TransferLookup(services)
        self.job_lists = JobLists(services)
        self.openings = SendPermissionsCache(services)
        self.window_seconds = services.settings.transfers.window_seconds
        pepper = services.settings.secrets.pepper.get_secret_value().encode()
        self._secret = hmac.digest(pepper, _PURPOSE, hashlib.sha256)
        # Requests for one target get different ids: certainly within this process, very likely among several.
        self._salts = itertools.count(secrets.randbelow(_SALTS))

    def create_task_id(self, file: TransferFile, bucket: int, target_key: int, project_id: str) -> str:
        """Return a new id for a task."""
        task = TransferTaskKey(TransferJobKey(file, bucket), target_key, next(self._salts) % _SALTS)
        return names.format_task_id(task, self._secret, project_id)

    def parse_task_id(self, call: Call, task_id: str) -> TransferTaskKey:
        """Return the task that an id names.

        Raises:
            Missing: The id was not issued to this project.
        """
        task = names.parse_task_id(task_id, self._secret, call.project_id)
        if task is None:
            raise build_missing("task", "Check the id that POST /v1/transfers answered.")
        return task


CONTEXT = web.AppKey("transfers_context", TransferContext)


def _attach(app: web.Application, services: Services) -> None:
    app[CONTEXT] = TransferContext(services)


routes = Routes("transfers", "One file goes to many hosts, over GSE.", attach=_attach)


def get_context(call: Call) -> TransferContext:
    """Return what the handlers of this process share."""
    return call.request.app[CONTEXT]


def build_missing(what: str, hint: str) -> Missing:
    """Build the error for an id that names nothing of this project."""
    return Missing("not_found", f"There is no such {what} for this key.", hint)


def build_missing_job() -> Missing:
    """Build the error for the id of a job that the project has no targets in."""
    return build_missing("job", "Check the id, and whether your project has targets in it.")
