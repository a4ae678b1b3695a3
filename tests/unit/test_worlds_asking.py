"""Asking in worlds of tasks: what is known of requests whose answers nobody read."""

from __future__ import annotations

from random import Random

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.worlds.tasks.asking import ApiCaller


async def test_an_answer_that_nobody_read_is_lost_however_soon_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for none: of a create without a name two tasks were there, and one had been asked for."""
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"code": 0})

    app = web.Application()
    app.router.add_post("/v1/create_task", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        dice = Random()
        monkeypatch.setattr(dice, "choice", lambda _: 60.0)
        asker = ApiCaller([str(server.make_url("")).rstrip("/")], "key", session, dice)
        answered = await asker.insist("POST", "create_task", loses=True, json={})

    assert (asked, answered.lost, answered.body) == (2, 1, {"code": 0})
