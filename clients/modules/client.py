"""A client of the four modules, which returns one result for each operation, whatever happens on the way."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import msgspec
from pydantic import BaseModel, Field

from clients.http import OpenSocket
from clients.modules.connection import ANSWER_MAX_BYTES, ModuleConnection, ModuleConnections, ModuleFailure
from domain.addresses.operations import (
    BATCH_MAX,
    AddressPage,
    LiveUprnsAndAppliedOps,
    Module,
    Operation,
    OperationKind,
    OperationOutcome,
    OperationResult,
    ReportedId,
    UnansweredResult,
)
from infra.address_settings import AddressSettings, ModuleSettings

IDS_PER_CALL: Final = 1_000
BATCH_MAX_BYTES: Final = 4 * 1024 * 1024
"""Records may be large; a batch of them is bounded."""
PAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""A page of addresses; of large records, fewer are listed at a time."""
FAILED_CALLS_MAX: Final = 40
"""Failed calls after which a batch is not halved any more; a few operations that make it fail are isolated within them.
What has not been isolated by then waits for the next cycle, which does not count as a try.
"""
FAILING_SECONDS_MAX: Final = 300.0
"""How long calls with operations may fail in all. A module must not hold up the others: what is left waits for the next
cycle, which does not count as a try.
"""
BATCH_LIMITS_MAX: Final = 10_000
"""Operations of which it is remembered how small a batch they are sent in."""
FAILED_ALONE: Final = 0
"""The limit of the batch of an operation that failed alone: it is sent alone again, after all others."""
BATCH_FAILED_ERROR: Final = (
    "The module fails on a batch with this operation and others; a later cycle goes on isolating those that cause it. "
    "This does not count as a try."
)


UNSENT_ERROR: Final = (
    "The module failed on other operations for several minutes; a later cycle goes on with this one. This does not "
    "count as a try. The last failure: {0}"
)


class _OperationResultsResponse(msgspec.Struct):
    results: list[OperationResult]


class _LooselyTypedResult(BaseModel):
    """A result with values of other types that mean the same, like digits as text; else it says what is wrong."""

    op_id: str
    outcome: OperationOutcome
    was: OperationOutcome | None = None
    missing: list[ReportedId] = Field(default_factory=list)
    address_id: ReportedId | None = None
    logical_address_id: ReportedId | None = None
    in_flight: bool = False
    error: str = ""

    def to_result(self) -> OperationResult:
        return OperationResult(**dict(self))


class _LenientBatchResponse(BaseModel):
    results: list[_LooselyTypedResult]


class _OrdersInFlightResponse(BaseModel):
    in_flight: list[int]


_RESULT_DECODER: Final = msgspec.json.Decoder(OperationResult)
_BATCH_DECODER: Final = msgspec.json.Decoder(_OperationResultsResponse)


def _parse_single_result(text: bytes) -> list[OperationResult]:
    try:
        return [_RESULT_DECODER.decode(text)]
    except (ValueError, RecursionError):
        return [_LooselyTypedResult.model_validate_json(text).to_result()]


def _parse_batch_results(text: bytes) -> list[OperationResult]:
    try:
        return _BATCH_DECODER.decode(text).results
    except (ValueError, RecursionError):
        return [each.to_result() for each in _LenientBatchResponse.model_validate_json(text).results]


class ModulesClient:
    """A client of all four modules, each with limits and a breaker of its own."""

    def __init__(self, settings: AddressSettings, open_socket_if_allowed: OpenSocket | None = None) -> None:
        self._settings = settings.modules
        self._connections = ModuleConnections(settings.modules, settings.credentials_folder, open_socket_if_allowed)
        self._batch_limits: dict[Module, dict[str, int]] = {module: {} for module in Module}

    def copy_with_settings(self, settings: AddressSettings) -> ModulesClient:
        """Return a client with other settings, which shares connections where they are equal."""
        other = copy.copy(self)
        other._settings = settings.modules
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connections.close()

    async def _get_or_open_connection(self, module: Module) -> ModuleConnection:
        return await self._connections.get_or_open(module, getattr(self._settings, module))

    async def apply_operations(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        """Send operations that touch different UPRNs, in batches and concurrent calls as configured.

        The results have the order of the operations. A failure of a module is a result: `failed`, with the reason; if
        the module does not answer at all, that result is an `UnansweredResult`.
        """
        _require_disjoint_uprns(operations)
        settings: ModuleSettings = getattr(self._settings, module)
        patience, slots = _PatienceWithFailures(), asyncio.Semaphore(settings.concurrency)
        limits, by_id = self._batch_limits[module], dict[str, OperationResult]()

        async def send_batch_in_its_turn(batch: _OperationBatch) -> None:
            async with slots:
                is_single = settings.batch == 1
                results = await self._send_and_isolate_failures(module, batch, patience, without_batching=is_single)
                by_id.update((each.op_id, each) for each in results)

        batches = _split_batches(operations, settings.batch, limits)
        # Those that are known to fail in larger batches come last, so that they hold up no others.
        batches.sort(key=lambda batch: min(limits.get(each, BATCH_MAX + 1) for each in batch.op_ids), reverse=True)
        await asyncio.gather(*map(send_batch_in_its_turn, batches))
        return [by_id[each.op_id] for each in operations]

    async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """Return the addresses of the UPRNs after this one.

        Raises:
            ModuleFailure: The module gave no usable answer; `is_too_large` if fewer addresses may fit into one.
        """
        path, max_bytes = f"/addresses?after={after}&limit={limit}", PAGE_MAX_BYTES if limit > 1 else ANSWER_MAX_BYTES
        return await (await self._get_or_open_connection(module)).call_with_retries(
            "GET", path, AddressPage.model_validate_json, max_bytes=max_bytes
        )

    async def look_up_operations(
        self, module: Module, operations: Sequence[Operation], *, is_probe: bool = False
    ) -> LiveUprnsAndAppliedOps:
        """Return what the module has of these operations and their UPRNs; a probe is sent although the breaker is open.

        Raises:
            ModuleFailure: The module gave no usable answer.
        """
        live, applied = set[int](), set[str]()
        connection = await self._get_or_open_connection(module)
        for start in range(0, len(operations), BATCH_MAX):
            asked = operations[start : start + BATCH_MAX]
            uprns = [uprn for each in asked for uprn in (each.uprn, each.uprn_2) if uprn]
            body = msgspec.json.encode({"uprns": uprns, "op_ids": [each.op_id for each in asked]})
            answered = await connection.call_with_retries(
                "POST", "/lookup", LiveUprnsAndAppliedOps.model_validate_json, body, is_probe=is_probe
            )
            live |= answered.live
            applied |= answered.applied
        return LiveUprnsAndAppliedOps(live=frozenset(live), applied=frozenset(applied))

    async def list_addresses_with_open_orders(self, module: Module, address_ids: Collection[int]) -> set[int]:
        """Return those of the addresses that have orders in flight.

        Raises:
            ModuleFailure: The module gave no usable answer.
        """
        ids, found = sorted(address_ids), set[int]()
        connection = await self._get_or_open_connection(module)
        for start in range(0, len(ids), IDS_PER_CALL):
            body = msgspec.json.encode({"address_ids": ids[start : start + IDS_PER_CALL]})
            answer = await connection.call_with_retries(
                "POST", "/in-flight", _OrdersInFlightResponse.model_validate_json, body
            )
            found |= set(answer.in_flight)
        return found & set(ids)

    async def _send_and_isolate_failures(
        self, module: Module, batch: _OperationBatch, patience: _PatienceWithFailures, *, without_batching: bool
    ) -> list[OperationResult]:
        """Return one result for each operation. One that makes its batch fail is isolated by halving: the others are
        applied."""
        results: list[OperationResult] = []
        parts, failures, all_answered = [batch], 0, True
        while parts:
            part = parts.pop(0)
            if patience.is_over:
                is_unsent = part is batch
                if not is_unsent:
                    self._limit_later_batches_to_size(module, part, len(part.operations))
                error = UNSENT_ERROR.format(patience.last_failure)
                results += part.build_unanswered_results(error, is_unapplied=is_unsent)
                continue
            began_at = time.monotonic()
            try:
                results += await self._send_batch_and_check_ids(module, part, without_batching=without_batching)
                self._forget_batch_limits(module, part)
            except ModuleFailure as failure:
                failures += 1
                all_answered = all_answered and failure.is_answered
                if failure.is_away or await self._fails_to_answer_lookup(module, part.operations[0]):
                    results += part.build_unanswered_results(str(failure), is_paused=failure.is_paused)
                elif len(part.operations) == 1:
                    results += await self._resend_operation_and_build_failed_result(
                        module, part, without_batching=without_batching
                    )
                elif failures > FAILED_CALLS_MAX:
                    results += await self._look_up_and_build_uncounted_results(
                        module, part, failure, all_calls_answered=all_answered
                    )
                else:
                    parts[:0] = part.split_in_halves()
                patience.add_failure(failure, began_at)
        return results

    def _limit_later_batches_to_size(self, module: Module, part: _OperationBatch, size: int) -> None:
        """Have these operations sent in batches of at most this size from now on: a larger one failed with them."""
        limits = self._batch_limits[module]
        if len(limits) > BATCH_LIMITS_MAX:
            limits.clear()
        limits.update(dict.fromkeys(part.op_ids, size))

    def _forget_batch_limits(self, module: Module, part: _OperationBatch) -> None:
        for op_id in part.op_ids if self._batch_limits[module] else ():
            self._batch_limits[module].pop(op_id, None)

    async def _resend_operation_and_build_failed_result(
        self, module: Module, single: _OperationBatch, *, without_batching: bool
    ) -> list[OperationResult]:
        """Send a failed operation to a module that answers again: it may have been down before."""
        try:
            return await self._send_batch_and_check_ids(module, single, without_batching=without_batching)
        except ModuleFailure as failure:
            self._limit_later_batches_to_size(module, single, FAILED_ALONE)
            is_away = failure.is_away or await self._fails_to_answer_lookup(module, single.operations[0])
            kind = UnansweredResult if is_away else OperationResult
            return [kind(op_id=single.op_ids[0], outcome=OperationOutcome.FAILED, error=str(failure))]

    async def _look_up_and_build_uncounted_results(
        self, module: Module, part: _OperationBatch, failure: ModuleFailure, *, all_calls_answered: bool
    ) -> list[OperationResult]:
        """Return results for operations of which unknown ones make their batch fail: none counts as a failure.

        Args:
            all_calls_answered: Whether all calls with them were answered, so that none is in progress.
        """
        applied = frozenset(part.op_ids)
        if all_calls_answered:
            with suppress(ModuleFailure):
                applied = (await self.look_up_operations(module, part.operations)).applied
        error = f"{BATCH_FAILED_ERROR} {failure}"
        return [
            UnansweredResult(
                op_id=op_id, outcome=OperationOutcome.FAILED, error=error, is_unapplied=op_id not in applied
            )
            for op_id in part.op_ids
        ]

    async def _fails_to_answer_lookup(self, module: Module, operation: Operation) -> bool:
        """Whether the module does not even answer a lookup."""
        try:
            await self.look_up_operations(module, [operation], is_probe=True)
        except ModuleFailure:
            return True
        return False

    async def _send_batch_and_check_ids(
        self, module: Module, batch: _OperationBatch, *, without_batching: bool
    ) -> list[OperationResult]:
        ids = batch.op_ids
        parse_results = _parse_single_result if without_batching else _parse_batch_results

        def parse_and_require_answered_ids_match(text: bytes) -> list[OperationResult]:
            results = parse_results(text)
            answered = [each.op_id for each in results]
            if answered != ids:
                raise ValueError(f"{len(ids)} operations from {ids[0]} were sent, and {answered[:3]} … were answered")
            return results

        connection = await self._get_or_open_connection(module)
        texts = [each.json_bytes for each in batch.operations]
        if without_batching:
            return await connection.call_with_retries(
                "PUT", f"/operations/{ids[0]}", parse_and_require_answered_ids_match, texts[0]
            )
        body = b'{"operations":[' + b",".join(texts) + b"]}"
        return await connection.call_with_retries("POST", "/operations", parse_and_require_answered_ids_match, body)


@dataclass(slots=True)
class _OperationBatch:
    """The operations of one call."""

    operations: list[Operation] = field(default_factory=list)

    @property
    def op_ids(self) -> list[str]:
        return [each.op_id for each in self.operations]

    def build_unanswered_results(
        self, error: str, *, is_paused: bool = False, is_unapplied: bool = False
    ) -> list[OperationResult]:
        failed = OperationOutcome.FAILED
        return [
            UnansweredResult(op_id=each, outcome=failed, error=error, is_paused=is_paused, is_unapplied=is_unapplied)
            for each in self.op_ids
        ]

    def split_in_halves(self) -> tuple[_OperationBatch, _OperationBatch]:
        middle = len(self.operations) // 2
        return _OperationBatch(self.operations[:middle]), _OperationBatch(self.operations[middle:])


@dataclass(slots=True)
class _PatienceWithFailures:
    """Whether operations are still sent to a module that has failed on some of them."""

    failing_seconds: float = 0.0
    """How long calls failed in all; of those at the same time, the time counts once."""
    counted_until: float = 0.0
    last_failure: ModuleFailure | None = None

    @property
    def is_over(self) -> bool:
        return self.failing_seconds > FAILING_SECONDS_MAX

    def add_failure(self, failure: ModuleFailure, began_at: float) -> None:
        """Count the time of a call that failed just now."""
        now = time.monotonic()
        self.failing_seconds += now - max(began_at, self.counted_until)
        self.counted_until, self.last_failure = now, failure


def _split_batches(
    operations: Sequence[Operation], max_operations: int, limits: Mapping[str, int]
) -> list[_OperationBatch]:
    """Split operations into batches within the limits of count and bytes; one operation alone may be larger.

    Args:
        limits: The most operations of a batch with an operation that made a larger one fail.
    """
    batches: list[_OperationBatch] = []
    size, most = 0, max_operations
    for operation in operations:
        length, limit = len(operation.json_bytes), limits.get(operation.op_id, max_operations)
        most = min(most, limit)
        if not batches or len(batches[-1].operations) >= most or size + length > BATCH_MAX_BYTES:
            batches.append(_OperationBatch())
            size, most = 0, min(limit, max_operations)
        batches[-1].operations.append(operation)
        size += length
    return batches


def _require_disjoint_uprns(operations: Sequence[Operation]) -> None:
    """Refuse operations that share a UPRN: sent in parallel, their order would be undefined."""
    # Purged addresses have no UPRN any more.
    uprns = [each.uprn for each in operations if each.kind is not OperationKind.PURGE]
    uprns += [each.uprn_2 for each in operations if each.uprn_2 is not None and each.uprn_2 != each.uprn]
    if len(set(uprns)) != len(uprns):
        raise ValueError("operations of one call share a UPRN. Send the later one after the answer to the earlier one.")
