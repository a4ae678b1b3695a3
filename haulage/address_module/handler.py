"""The HTTP side of the contract: operations alone or in batches, lookups, pages of addresses, and orders in flight."""

from __future__ import annotations

import hmac
import json
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, Field, ValidationError

from haulage.address_module.addresses import AddressRow, AddressStore, AddressTable, PageTooLarge
from haulage.address_module.database import Connection, Database, DatabaseUnreachable, Dialect, Transaction
from haulage.address_module.executor import HasInFlightOrders, OperationExecutor, list_applied_operations
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


class BatchRequest(BaseModel):
    """Operations to apply in this order."""

    operations: list[Operation] = Field(min_length=1, max_length=BATCH_MAX)


class BatchResponse(BaseModel):
    """The results, in the same order."""

    results: list[OperationResult]


class PageQuery(BaseModel):
    """Which page of addresses to return."""

    after: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000, ge=1, le=PAGE_MAX)


class PageResponse(BaseModel):
    """A page of addresses."""

    addresses: list[AddressEntry]


class LookupRequest(BaseModel):
    """The UPRNs and operations to look up."""

    uprns: list[int] = Field(max_length=LOOKUP_MAX)
    op_ids: list[str] = Field(max_length=LOOKUP_MAX)


class LookupResponse(BaseModel):
    """Those of the UPRNs that have an address, and of the operations that took effect."""

    live: list[int]
    applied: list[str]


class InFlightRequest(BaseModel):
    """The addresses to check."""

    address_ids: list[int] = Field(max_length=1_000)


class InFlightResponse(BaseModel):
    """Those of them that have orders in flight."""

    in_flight: list[int]


@dataclass(frozen=True, slots=True)
class AddressModuleHandlers:
    """Handlers of the routes."""

    database: Database
    addresses: Callable[[Transaction], AddressStore]
    has_in_flight_orders: HasInFlightOrders

    async def apply_one(self, request: web.Request) -> web.Response:
        """Apply one operation."""
        operation = Operation.model_validate_json(await request.read())
        if operation.op_id != request.match_info["op_id"]:
            raise web.HTTPUnprocessableEntity(text=f"The body is of operation {operation.op_id!r}. Send it there.")
        return _build_response((await self._apply_together_or_one_by_one([operation]))[0])

    async def apply_batch(self, request: web.Request) -> web.Response:
        """Apply operations in order; a failure of one does not affect the others."""
        operations = BatchRequest.model_validate_json(await request.read()).operations
        return _build_response(BatchResponse(results=await self._apply_together_or_one_by_one(operations)))

    async def look_up(self, request: web.Request) -> web.Response:
        """Return which UPRNs have an address, and which operations took effect."""
        query = LookupRequest.model_validate_json(await request.read())

        def read_live_uprns_and_applied_operations(transaction: Transaction) -> LookupResponse:
            # In this order: an operation that takes effect in between is reported as applied, its UPRNs as before.
            live = self.addresses(transaction).list_live(query.uprns)
            return LookupResponse(live=live, applied=list_applied_operations(transaction, query.op_ids))

        return _build_response(await self.database.run(read_live_uprns_and_applied_operations))

    async def list_addresses(self, request: web.Request) -> web.Response:
        """Return addresses in the order of their UPRNs."""
        query = PageQuery.model_validate(dict(request.query))

        def list_page_or_say_it_is_too_large(transaction: Transaction) -> Sequence[AddressRow] | PageTooLarge:
            # Raised, it would close all connections.
            try:
                return self.addresses(transaction).list_page(query.after, query.limit)
            except PageTooLarge as error:
                return error

        rows = await self.database.run(list_page_or_say_it_is_too_large)
        if isinstance(rows, PageTooLarge):
            raise web.HTTPRequestEntityTooLarge(0, text=str(rows))
        return _build_response(PageResponse(addresses=[AddressEntry(**asdict(each)) for each in rows]))

    async def list_addresses_with_open_orders(self, request: web.Request) -> web.Response:
        """Return the addresses that have orders in flight."""
        query = InFlightRequest.model_validate_json(await request.read()).address_ids

        def list_ids_with_orders_in_flight(transaction: Transaction) -> list[int]:
            return [each for each in query if self.has_in_flight_orders(transaction, each)]

        return _build_response(InFlightResponse(in_flight=await self.database.run(list_ids_with_orders_in_flight)))

    async def _apply_together_or_one_by_one(self, operations: list[Operation]) -> list[OperationResult]:
        """Apply operations in one transaction; if that fails, each in a transaction of its own.

        A single one gets a second transaction, too: the database may have been restarted in the middle of the first.
        """
        try:
            return await self.database.run(lambda transaction: self._apply_all(transaction, operations))
        except DatabaseUnreachable:
            raise
        except Exception:  # noqa: BLE001 (one of them may have broken the transaction, so each gets its own)
            return [await self._apply_in_own_transaction(operation) for operation in operations]

    def _apply_all(self, transaction: Transaction, operations: list[Operation]) -> list[OperationResult]:
        executor = OperationExecutor(transaction, self.addresses(transaction), self.has_in_flight_orders)
        return [executor.apply_unless_repeated_or_stale(operation) for operation in operations]

    async def _apply_in_own_transaction(self, operation: Operation) -> OperationResult:
        """Apply an operation in a transaction of its own; an exception is its result."""
        try:
            return (await self.database.run(lambda transaction: self._apply_all(transaction, [operation])))[0]
        except DatabaseUnreachable:
            raise
        except Exception:  # noqa: BLE001 (the sender gets it with the traceback)
            trace = traceback.format_exc()[-ERROR_MAX_CHARACTERS:]
            return OperationResult(op_id=operation.op_id, outcome=OperationOutcome.FAILED, error=trace)


def build_address_module(
    connect: Callable[[], Connection],
    dialect: Dialect,
    has_in_flight_orders: HasInFlightOrders,
    *,
    token: str,
    addresses: Callable[[Transaction], AddressStore] = AddressTable,
    threads: int = 4,
) -> web.Application:
    """Build the contract as a sub-application: `app.add_subapp("/haulage", build_address_module(…))`.

    Args:
        connect: Opens a DB-API connection that any thread may use.
        dialect: The database: SQLITE, POSTGRESQL or MYSQL.
        has_in_flight_orders: Called for each address to be deleted; if it returns True, the address is kept logically.
        token: What Haulage sends as `Authorization: Bearer`; empty where authentication happens elsewhere.
        addresses: The tables of addresses, by default `haulage_addresses` and `haulage_deleted`.
        threads: The number of concurrent transactions.
    """
    database = Database(connect, dialect, threads)
    handler = AddressModuleHandlers(database, addresses, has_in_flight_orders)
    app = web.Application(client_max_size=BODY_MAX_BYTES, middlewares=[_build_auth_middleware(token), _render_errors])
    app.router.add_put("/operations/{op_id}", handler.apply_one)
    app.router.add_post("/operations", handler.apply_batch)
    app.router.add_post("/lookup", handler.look_up)
    app.router.add_get("/addresses", handler.list_addresses)
    app.router.add_post("/in-flight", handler.list_addresses_with_open_orders)

    async def close_database(app: web.Application) -> AsyncIterator[None]:
        yield
        database.close()

    app.cleanup_ctx.append(close_database)
    return app


def _build_auth_middleware(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        sent = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if token and not hmac.compare_digest(sent, expected):
            raise web.HTTPUnauthorized(text="Show the module's token as Authorization: Bearer.")
        return await handler(request)

    return authenticate


@web.middleware
async def _render_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as error:
        problem = json.dumps({"detail": _describe_validation_faults(error)})
        raise web.HTTPUnprocessableEntity(text=problem, content_type="application/json") from None
    except DatabaseUnreachable as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error


def _describe_validation_faults(error: ValidationError) -> str:
    """Describe the first faults of a request, each with its place."""
    wrong = error.errors(include_url=False, include_input=False, include_context=False)
    sentences = []
    for each in wrong[:FAULTS_SHOWN]:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in each["loc"]).removeprefix(".")
        sentences.append(f"{place or 'the request'}: {each['msg'].removeprefix('Value error, ')}")
    left = len(wrong) - len(sentences)
    more = f"; and {left} more like these" if left else ""
    return f"The request is not of the contract: {'; '.join(sentences)}{more}. Send what it says."


def _build_response(body: BaseModel) -> web.Response:
    return web.Response(body=body.model_dump_json(exclude_defaults=True).encode(), content_type="application/json")
