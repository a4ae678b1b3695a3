"""The HTTP side of the contract: operations alone or in batches, which UPRNs are live, pages, and orders in flight."""

from __future__ import annotations

import hmac
import json
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, Field, ValidationError

from haulage.address_module.addresses import Addresses, AddressTable
from haulage.address_module.applying import Applying, HasInFlightOrders, known_operations
from haulage.address_module.database import Connection, Database, Dialect, Transaction, Unreachable
from haulage.address_module.models import (
    BATCH_MAX,
    ERROR_MAX_CHARACTERS,
    LOOKUP_MAX,
    AddressEntry,
    Operation,
    OperationOutcome,
    OperationResult,
)

BODY_MAX_BYTES: Final = 32 * 1024 * 1024
PAGE_MAX: Final = 5_000
FAULTS_SHOWN: Final = 3


class Batch(BaseModel):
    """Several operations, applied in this order."""

    operations: list[Operation] = Field(min_length=1, max_length=BATCH_MAX)


class Results(BaseModel):
    """Theirs, in the same order."""

    results: list[OperationResult]


class Page(BaseModel):
    """What is asked of a page of addresses."""

    after: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000, ge=1, le=PAGE_MAX)


class Entries(BaseModel):
    """A page of addresses."""

    addresses: list[AddressEntry]


class Asked(BaseModel):
    """Which UPRNs and operations are asked about."""

    uprns: list[int] = Field(max_length=LOOKUP_MAX)
    op_ids: list[str] = Field(max_length=LOOKUP_MAX)


class Found(BaseModel):
    """The UPRNs of them that an address has, and the operations that took effect."""

    live: list[int]
    applied: list[str]


class Ids(BaseModel):
    """Which addresses are asked about."""

    address_ids: list[int] = Field(max_length=1_000)


class InFlight(BaseModel):
    """Those of them that have orders in flight."""

    in_flight: list[int]


@dataclass(frozen=True, slots=True)
class Keeper:
    """What answers the routes."""

    database: Database
    addresses: Callable[[Transaction], Addresses]
    has_in_flight_orders: HasInFlightOrders

    async def one(self, request: web.Request) -> web.Response:
        """Apply one operation."""
        operation = Operation.model_validate_json(await request.read())
        if operation.op_id != request.match_info["op_id"]:
            raise web.HTTPUnprocessableEntity(text=f"The body is of operation {operation.op_id!r}. Send it there.")
        return _json(await self._apart(operation))

    async def many(self, request: web.Request) -> web.Response:
        """Apply operations in order; none suffers from another."""
        operations = Batch.model_validate_json(await request.read()).operations
        try:
            results = await self.database.run(lambda transaction: self._applied(transaction, operations))
        except Unreachable:
            raise
        except Exception:  # noqa: BLE001 (whatever one of them did to the transaction, the others get their own)
            results = [await self._apart(operation) for operation in operations]
        return _json(Results(results=results))

    async def lookup(self, request: web.Request) -> web.Response:
        """Tell which UPRNs an address has, and which operations took effect."""
        asked = Asked.model_validate_json(await request.read())

        def found(transaction: Transaction) -> Found:
            # In this order: what takes effect in between is told as applied, and its UPRNs as they were before.
            live = self.addresses(transaction).live(asked.uprns)
            return Found(live=live, applied=known_operations(transaction, asked.op_ids))

        return _json(await self.database.run(found))

    async def page(self, request: web.Request) -> web.Response:
        """Tell addresses in order of their UPRNs."""
        asked = Page.model_validate(dict(request.query))
        shown = await self.database.run(lambda transaction: self.addresses(transaction).page(asked.after, asked.limit))
        return _json(Entries(addresses=[AddressEntry(**asdict(each)) for each in shown]))

    async def in_flight(self, request: web.Request) -> web.Response:
        """Tell which addresses have orders in flight."""
        asked = Ids.model_validate_json(await request.read()).address_ids

        def found(transaction: Transaction) -> list[int]:
            return [each for each in asked if self.has_in_flight_orders(transaction, each)]

        return _json(InFlight(in_flight=await self.database.run(found)))

    def _applied(self, transaction: Transaction, operations: list[Operation]) -> list[OperationResult]:
        applying = Applying(transaction, self.addresses(transaction), self.has_in_flight_orders)
        return [applying.apply(operation) for operation in operations]

    async def _apart(self, operation: Operation) -> OperationResult:
        """One operation in a transaction of its own; what goes wrong is its result."""
        try:
            return (await self.database.run(lambda transaction: self._applied(transaction, [operation])))[0]
        except Unreachable:
            raise
        except Exception:  # noqa: BLE001 (it is told to who sent it, with the trace)
            trace = traceback.format_exc()[-ERROR_MAX_CHARACTERS:]
            return OperationResult(op_id=operation.op_id, outcome=OperationOutcome.FAILED, error=trace)


def address_module(
    connect: Callable[[], Connection],
    dialect: Dialect,
    has_in_flight_orders: HasInFlightOrders,
    *,
    token: str,
    addresses: Callable[[Transaction], Addresses] = AddressTable,
    threads: int = 4,
) -> web.Application:
    """The contract as a sub-application: `app.add_subapp("/haulage", address_module(…))`.

    Args:
        connect: Opens a DB-API connection that any thread may use.
        dialect: What that database is: SQLITE, POSTGRESQL or MYSQL.
        has_in_flight_orders: Asked for each address that is to go; it decides whether it stays logically.
        token: What Haulage shows as `Authorization: Bearer`; empty where somebody else looks after that.
        addresses: The tables of addresses, by default `haulage_addresses` and `haulage_deleted`.
        threads: How many transactions run at a time.
    """
    database = Database(connect, dialect, threads)
    keeper = Keeper(database, addresses, has_in_flight_orders)
    app = web.Application(client_max_size=BODY_MAX_BYTES, middlewares=[_guard(token), _readable])
    app.router.add_put("/operations/{op_id}", keeper.one)
    app.router.add_post("/operations", keeper.many)
    app.router.add_post("/lookup", keeper.lookup)
    app.router.add_get("/addresses", keeper.page)
    app.router.add_post("/in-flight", keeper.in_flight)

    async def closing(app: web.Application) -> AsyncIterator[None]:
        yield
        database.close()

    app.cleanup_ctx.append(closing)
    return app


def _guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "").encode()
        if token and not hmac.compare_digest(shown, expected):
            raise web.HTTPUnauthorized(text="Show the module's token as Authorization: Bearer.")
        return await handler(request)

    return guarded


@web.middleware
async def _readable(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as error:
        problem = json.dumps({"detail": _what_is_wrong(error)})
        raise web.HTTPUnprocessableEntity(text=problem, content_type="application/json") from None
    except Unreachable as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error


def _what_is_wrong(error: ValidationError) -> str:
    """Say what of a request is not of the contract: the first faults, each with its place."""
    wrong = error.errors(include_url=False, include_input=False, include_context=False)
    sentences = []
    for each in wrong[:FAULTS_SHOWN]:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in each["loc"]).removeprefix(".")
        sentences.append(f"{place or 'the request'}: {each['msg'].removeprefix('Value error, ')}")
    left = len(wrong) - len(sentences)
    more = f"; and {left} more like these" if left else ""
    return f"The request is not of the contract: {'; '.join(sentences)}{more}. Send what it says."


def _json(body: BaseModel) -> web.Response:
    return web.Response(body=body.model_dump_json(exclude_defaults=True).encode(), content_type="application/json")
