"""Routes for tests of the framework: to be asked wrongly, to fail, and with names of before."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from api.http.models import Deprecated, Request, Response
from api.http.problems import Problem
from api.http.routes import Call, RouteAccess, Routes
from domain.faults import Conflict, Fault, Gone, Invalid, Missing, QuotaExhausted, SourceFault, Unauthenticated

INT64 = 2**63

toys = Routes("toys", "Routes that need no key, to be wrong with.")


class Toy(Request):
    """What is sent."""

    size: int = Field(ge=0, lt=INT64)
    name: str = Field(default="", max_length=100)
    parts: list[str] = Field(default=[], max_length=100)


class ToyQuery(Request):
    """What is asked."""

    limit: int = Field(default=10, ge=1, le=100)
    word: str | None = Field(default=None, max_length=10)


class KindPath(Request):
    """A kind of fault."""

    kind: str = Field(pattern="^[A-Za-z]+$")


class Echo(Response):
    """What arrived."""

    seen: dict[str, Any]


@toys.post("/toys", access=RouteAccess.PUBLIC, status=201)
async def make(_call: Call, body: Toy) -> Echo:
    """Echo a body."""
    return Echo(seen=body.model_dump())


@toys.get("/toys", access=RouteAccess.PUBLIC)
async def browse(_call: Call, query: ToyQuery) -> Echo:
    """Echo a query."""
    return Echo(seen=query.model_dump())


OLD = Deprecated(since=date(2026, 12, 1), until=date(2027, 6, 1), instead="Send `size`.")


class OldPart(Request):
    """A part of an old toy."""

    weight: Annotated[int | None, OLD] = None


class OldToy(Request):
    """What is sent, with a field of before."""

    size: int = 0
    length: Annotated[int | None, OLD] = Field(default=None, description="the size")
    parts: list[OldPart] = Field(default=[])


@toys.put("/toys/old", access=RouteAccess.PUBLIC)
async def replace(_call: Call, body: OldToy) -> Echo:
    """Echo a body, with names of before."""
    return Echo(seen=body.model_dump())


@toys.get("/toys/old", access=RouteAccess.PUBLIC, deprecated=OLD)
async def browse_as_before(_call: Call) -> Echo:
    """Echo nothing."""
    return Echo(seen={})


@toys.delete("/toys", access=RouteAccess.PUBLIC)
async def clear(_call: Call) -> None:
    """Answer nothing."""


@toys.get("/toys/broken", access=RouteAccess.PUBLIC)
async def broken(_call: Call) -> Echo:
    """Fail on our side."""
    raise RuntimeError("the password is swordfish")


@toys.get("/toys/outage", access=RouteAccess.PUBLIC)
async def outage(_call: Call) -> Echo:
    """Need a part that is down."""
    raise ConnectionRefusedError("connect call failed ('127.0.0.1', 5432)")


@toys.get("/toys/faults/{kind}", access=RouteAccess.PUBLIC)
async def fail(_call: Call, path: KindPath) -> Echo:
    """Raise a fault of a kind."""
    kinds: dict[str, type[Fault]] = {
        kind.__name__: kind for kind in (Invalid, Unauthenticated, Missing, Conflict, Gone, QuotaExhausted, SourceFault)
    }
    raise kinds[path.kind]("toy_fault", "The toy is wrong.", "Take another.")


def envelope(problem: Problem) -> web.Response:
    """Another system's way to show a problem."""
    return web.json_response({"code": problem.status, "msg": problem.detail})


enveloped = Routes("enveloped", "Routes with an envelope of their own.", render=envelope)


@enveloped.post("/enveloped", access=RouteAccess.PROJECT)
async def wrap(_call: Call, body: Toy) -> Echo:
    """Echo a body, for callers with a key."""
    return Echo(seen=body.model_dump())
