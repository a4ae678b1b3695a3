"""The API: the routes of every system in one application, and the process that serves it."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from aiohttp import web

from api import console, docs, health, middleware, openapi, overview, projects, server, session, webhooks
from api.auth import GATE, Gate
from api.dispatch import endpoint
from api.pushers import PUSHERS, Pushers
from api.routes import Routes
from api.systems import import_apis
from domain.faults import Invalid
from domain.projects import PEPPER_MIN_CHARACTERS
from infra import log
from infra.settings import Settings
from services import services
from services.services import Services
from stores import migrate

GARBAGE = (50_000, 20, 50)
"""How many objects more than before bring the collector, and how often it looks at older ones."""
ROOMS: Sequence[Routes] = (
    health.routes,
    docs.routes,
    console.routes,
    session.routes,
    overview.routes,
    projects.routes,
    *(api.routes for api in import_apis().values()),
    webhooks.routes,
)


def build(services: Services, rooms: Sequence[Routes] = ROOMS) -> web.Application:
    """The application over these clients, which stay the caller's to close."""
    settings = services.settings
    _check_pepper(settings)
    app = web.Application(
        middlewares=[middleware.door(settings.api.request_timeout_seconds)],
        client_max_size=settings.api.body_max_bytes,
    )
    app[docs.DOCUMENT] = openapi.encode(rooms)
    app.on_response_prepare.append(middleware.dress)
    gate = app[GATE] = Gate(services.database, settings, services.sealer)
    app[PUSHERS] = Pushers(services.http, settings.addresses.push)
    rests = index_paths({route.path for room in rooms for route in room})
    for room in rooms:
        if room.attach:
            room.attach(app, services)
        for route in room:
            app.router.add_route(
                route.method, resource(route.path, rests, route.slashes), endpoint(route, services, gate)
            )
    return app


def index_paths(paths: Collection[str]) -> Mapping[str, Sequence[str]]:
    """What follows each beginning of these paths that ends with a slash."""
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        for slash in re.finditer("/", path):
            rests[path[: slash.end()]].append(path[slash.end() :])
    return rests


def resource(path: str, rests: Mapping[str, Sequence[str]], slashes: str = "") -> str:
    """A path as aiohttp matches it: a variable never stands for a word that another path has in its place.

    Args:
        rests: The index of all paths.
        slashes: The variable that may hold slashes; it does not swallow what other paths have behind it.
    """
    longer = "".join(f"(?<!{re.escape(f'/{rest}')})" for rest in rests.get(f"{path}/", ()))

    def narrow(variable: re.Match[str]) -> str:
        words = {rest.partition("/")[0] for rest in rests[path[: variable.start()]]}
        taken = "|".join(sorted(re.escape(word) for word in words if word and not word.startswith("{")))
        not_taken = f"(?!(?:{taken})(?:/|$))" if taken else ""
        if variable[1] == slashes:
            return f"{{{variable[1]}:{not_taken}.+{longer}}}"
        return f"{{{variable[1]}:{not_taken}[^/]+}}" if taken else variable[0]

    return re.sub(r"{(\w+)}", narrow, path)


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is under way."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with services.connect(settings) as held:
        await migrate.require_head(held.database)
        async with server.listening(build(held), settings.api) as (address, *own):
            # What is loaded by now stays: the collector need not look through it again and again. Nor need it come so
            # often: a request leaves nothing behind that only it can find, and a thousand at a time are no garbage.
            gc.freeze()
            gc.set_threshold(*GARBAGE)
            log.get(__name__).info("api_ready", address=address, own=next(iter(own), address))
            await stop.wait()
            log.get(__name__).info("api_stopping")


def _check_pepper(settings: Settings) -> None:
    if len(settings.secrets.pepper.get_secret_value()) < PEPPER_MIN_CHARACTERS:
        raise Invalid(
            "pepper_short",
            f"HAULAGE_SECRETS__PEPPER has fewer than {PEPPER_MIN_CHARACTERS} characters, so key hashes would be weak.",
            "Set it to a random text, the same in every API process.",
        )
