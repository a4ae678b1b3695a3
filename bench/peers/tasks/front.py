"""The front of every peer: the five routes that are measured, on aiohttp and uvloop, over whatever keeps the tasks."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec
import uvloop  # in the peers' environments, and in ours
from aiohttp import web

QUEUE = "bench"
PENDING, RUNNING, SUCCESS = 1, 2, 3

Held: TypeAlias = tuple[str, str, Any]
"""A task's id and content, and what its holder needs to end it."""


class Store(Protocol):
    """What keeps tasks."""

    async def create(self, content: str) -> str:
        """The id of a new task, once it is durable."""

    async def status(self, task_id: str) -> int | None:
        """Return the state of a task."""

    async def hold(self, limit: int) -> list[Held]:
        """Give up to a number of tasks to the caller."""

    async def finish(self, task_id: str, lease: Any) -> bool:
        """End a held task well; whether it was there to be ended."""

    async def counts(self) -> dict[int, int]:
        """Tasks by status."""


@runtime_checkable
class GrowableStore(Protocol):
    """A store into which ended tasks can be laid."""

    async def grow(self, tasks: int) -> None:
        """Create a number of ended tasks, in the fastest way."""


Open: TypeAlias = Callable[[argparse.Namespace], AbstractAsyncContextManager[Store]]


class _Routes:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, request: web.Request) -> web.Response:
        task = msgspec.json.decode(await request.read())["task_data"]
        return _build_response(task_id=await self._store.create(task["task_content"]))

    async def get(self, request: web.Request) -> web.Response:
        task_id = request.query["task_id"]
        status = await self._store.status(task_id)
        return _build_response(code=0 if status else 8035, task_data={"task_id": task_id, "status": status})

    async def hold(self, request: web.Request) -> web.Response:
        tasks = await self._store.hold(msgspec.json.decode(await request.read())["limit"])
        listed = [{"task_id": task_id, "task_content": content, "lease": lease} for task_id, content, lease in tasks]
        return _build_response(task_list=listed)

    async def set(self, request: web.Request) -> web.Response:
        task = msgspec.json.decode(await request.read())["task_data"]
        is_done = await self._store.finish(task["task_id"], task["lease"])
        return _build_response(code=0 if is_done else 8041, task_id=task["task_id"])

    async def counts(self, request: web.Request) -> web.Response:
        counts = await self._store.counts()
        return _build_response(
            pending=counts.get(PENDING, 0), running=counts.get(RUNNING, 0), success=counts.get(SUCCESS, 0)
        )


def _grow(store: GrowableStore) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def grow(request: web.Request) -> web.Response:
        await store.grow(int(request.query["tasks"]))
        return _build_response()

    return grow


def _build_response(code: int = 0, **members: Any) -> web.Response:
    body = msgspec.json.encode({"code": code, "msg": "SUCCESS" if code == 0 else "FAIL_REASON::", **members})
    return web.Response(body=body, content_type="application/json")


def serve(open_store: Open, *options: str) -> None:
    """Serve until standard input ends; the address is said first.

    Args:
        open_store: Makes what keeps the tasks, given the command's options.
        options: Names of options, each with a text.
    """
    parser = argparse.ArgumentParser()
    for option in options:
        parser.add_argument(f"--{option}", default="")
    # What others leave to threads at the end must not keep the process.
    uvloop.run(_serve(open_store, parser.parse_args()))
    sys.stdout.flush()
    os._exit(0)


async def _serve(open_store: Open, given: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(given))
        routes = _Routes(store)
        app = web.Application()
        app.router.add_post("/v1/create_task", routes.create)
        app.router.add_get("/v1/get_task", routes.get)
        app.router.add_post("/v1/hold_tasks", routes.hold)
        app.router.add_post("/v1/set_task", routes.set)
        app.router.add_get("/v1/get_task_counts_by_type", routes.counts)
        if isinstance(store, GrowableStore):
            app.router.add_post("/grow", _grow(store))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
        async for _ in _lines():
            pass


async def _lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line
