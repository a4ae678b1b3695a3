"""The room: where its routes are declared, and what its handlers work with."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets

from aiohttp import web
from pydantic import Field

from api.models import Request
from api.routes import Call, Routes
from api.transfers.joins import Joins
from api.transfers.listing import Listing
from api.transfers.lookup import Lookup
from api.transfers.openings_cache import OpeningsCache
from domain.faults import Missing
from domain.transfers import ids
from domain.transfers.ids import Job, Task
from domain.transfers.request import File
from services.services import Services

_PURPOSE = b"haulage transfer task 1"
_SALTS = 2**ids.SALT_BITS


class Desk:
    """What this process knows of transfers: who is about to join and may, where jobs stand, and how ids are made."""

    def __init__(self, services: Services) -> None:
        self.joins = Joins(services)
        self.lookup = Lookup(services)
        self.listing = Listing(services)
        self.openings = OpeningsCache(services)
        self.window_seconds = services.settings.transfers.window_seconds
        pepper = services.settings.secrets.pepper.get_secret_value().encode()
        self._secret = hmac.digest(pepper, _PURPOSE, hashlib.sha256)
        # Requests for one target get different ids: surely within this process, very likely among several.
        self._salts = itertools.count(secrets.randbelow(_SALTS))

    def new_task_id(self, file: File, bucket: int, target_key: int, project_id: str) -> str:
        """An id that nobody has."""
        task = Task(Job(file, bucket), target_key, next(self._salts) % _SALTS)
        return ids.write_task(task, self._secret, project_id)

    def task(self, call: Call, task_id: str) -> Task:
        """The task that an id names.

        Raises:
            Missing: We gave no such id to this project.
        """
        task = ids.read_task(task_id, self._secret, call.project_id)
        if task is None:
            raise missing("task", "Check the id that POST /v1/transfers answered.")
        return task


DESK = web.AppKey("transfers_desk", Desk)


def _attach(app: web.Application, services: Services) -> None:
    app[DESK] = Desk(services)


routes = Routes("transfers", "One file goes to many hosts, over GSE.", attach=_attach)


class TaskPath(Request):
    """Names one task. It holds slashes, which may be percent-encoded or not."""

    task_id: str = Field(max_length=400)


class JobPath(Request):
    """Names one job. It holds slashes, which may be percent-encoded or not."""

    job_id: str = Field(max_length=400)


def desk(call: Call) -> Desk:
    """What this process knows of transfers."""
    return call.request.app[DESK]


def missing(what: str, hint: str) -> Missing:
    """What is told of an id that names nothing of this project."""
    return Missing("not_found", f"There is no such {what} for this key.", hint)
