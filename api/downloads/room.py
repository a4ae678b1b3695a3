"""The room: where its routes are declared, and how one download is named in them."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from api.downloads import press, watching
from api.downloads.board import BOARD, Board
from api.downloads.watching import WATCHES, Watches
from api.http.models import Request
from api.http.routes import Call, Routes
from services.services import Services


def _attach(app: web.Application, services: Services) -> None:
    watching.attach(app, services)
    press.attach(app)


routes = Routes("downloads", "A paged source becomes a file.", attach=_attach)


class TaskPath(Request):
    """Names one download."""

    task_id: str = Field(pattern=r"^dl_[0-9a-z]{24}$")


def board(call: Call) -> Board:
    """Where this process reads how downloads stand."""
    return call.request.app[BOARD]


def watches(call: Call) -> Watches:
    """What this process watches."""
    return call.request.app[WATCHES]
