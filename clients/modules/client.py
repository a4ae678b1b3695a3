"""The client of the four modules: operations in, results out, one for each, whatever happens on the way."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from pydantic import BaseModel, TypeAdapter

from clients.http import OpenSocket
from clients.modules.connection import ModuleConnection, ModuleConnections, ModuleFailure
from domain.addresses.operations import (
    BATCH_MAX,
    AddressPage,
    Module,
    ModuleLookup,
    Operation,
    OperationKind,
    OperationOutcome,
    OperationResult,
    UnansweredResult,
)
from infra.settings import AddressSettings

IDS_PER_CALL: Final = 1_000
BATCH_MAX_BYTES: Final = 4 * 1024 * 1024
"""Records may be large; a batch of them is not."""
HALVINGS_MAX: Final = 40
"""Failed calls after which a batch is not halved any more: a few operations that spoil it are found within. What has
not been told apart from them by then waits for the next time, at no cost."""
NOT_TOLD_APART: Final = (
    "The module fails on a batch with this operation and others, and so often that a later cycle looks for those that "
    "it cannot digest. It costs this one no try."
)


class _Results(BaseModel):
    results: list[OperationResult]


class _Sides(BaseModel):
    uprns: list[int]
    op_ids: list[str]


class _Asked(BaseModel):
    address_ids: list[int]


class _InFlight(BaseModel):
    in_flight: list[int]


_RESULT: Final = TypeAdapter(OperationResult)


class Modules:
    """All four, each with limits and a breaker of its own."""

    def __init__(self, settings: AddressSettings, open_socket: OpenSocket | None = None) -> None:
        self._settings = settings.modules
        self._connections = ModuleConnections(settings.modules, settings.credentials_folder, open_socket)

    def with_settings(self, settings: AddressSettings) -> Modules:
        """The same modules under other settings, over the same connections where these are alike."""
        other = copy.copy(self)
        other._settings = settings.modules
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connections.close()

    async def _connect(self, module: Module) -> ModuleConnection:
        return await self._connections.get(module, getattr(self._settings, module))

    async def apply(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        """Send operations that touch different UPRNs, as many in a call and as many calls at a time as are set.

        The results stand in the order of the operations. A module's fault is a result: `failed`, with the reason; if
        the module answers nobody, that result is `Away`.
        """
        _check_apart(operations)
        size: int = getattr(self._settings, module).batch
        answers = await asyncio.gather(*(self._sent(module, each, alone=size == 1) for each in _cut(operations, size)))
        return [result for answer in answers for result in answer]

    async def list_addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """What the UPRNs after this one have.

        Raises:
            ModuleFailure: The module does not tell.
        """
        path = f"/addresses?after={after}&limit={limit}"
        return await (await self._connect(module)).call("GET", path, AddressPage.model_validate_json)

    async def look_up(self, module: Module, operations: Sequence[Operation], *, is_probe: bool = False) -> ModuleLookup:
        """What the module has of these operations and their UPRNs; a probe goes out though the breaker is open.

        Raises as `addresses` does.
        """
        live, applied = set[int](), set[str]()
        connection = await self._connect(module)
        for start in range(0, len(operations), BATCH_MAX):
            asked = operations[start : start + BATCH_MAX]
            sides = _Sides(
                uprns=[uprn for each in asked for uprn in (each.uprn, each.uprn_2) if uprn],
                op_ids=[each.op_id for each in asked],
            )
            body = sides.model_dump_json().encode()
            told = await connection.call("POST", "/lookup", ModuleLookup.model_validate_json, body, is_probe=is_probe)
            live |= told.live
            applied |= told.applied
        return ModuleLookup(live=frozenset(live), applied=frozenset(applied))

    async def list_in_flight(self, module: Module, address_ids: Collection[int]) -> set[int]:
        """Those of the addresses that have orders in flight there. Raises as `addresses` does."""
        asked, found = sorted(address_ids), set[int]()
        connection = await self._connect(module)
        for start in range(0, len(asked), IDS_PER_CALL):
            body = _Asked(address_ids=asked[start : start + IDS_PER_CALL]).model_dump_json().encode()
            answer = await connection.call("POST", "/in-flight", _InFlight.model_validate_json, body)
            found |= set(answer.in_flight)
        return found & set(asked)

    async def _sent(self, module: Module, batch: _Batch, *, alone: bool) -> list[OperationResult]:
        """One result for each. An operation that a module cannot digest is found by halves: the others are applied."""
        results: list[OperationResult] = []
        parts, failures, all_answered = [batch], 0, True
        while parts:
            part = parts.pop(0)
            try:
                results += await self._answered(module, part, alone=alone)
            except ModuleFailure as failure:
                failures += 1
                all_answered = all_answered and failure.is_answered
                if failure.is_away or await self._is_away(module, part.operations[0]):
                    results += [
                        UnansweredResult(op_id=op_id, outcome=OperationOutcome.FAILED, error=str(failure))
                        for op_id in part.op_ids
                    ]
                elif len(part.operations) == 1:
                    results += await self._repeated(module, part, alone=alone)
                elif failures > HALVINGS_MAX:
                    results += await self._postponed(module, part, failure, is_over=all_answered)
                else:
                    parts[:0] = part.halves()
        return results

    async def _repeated(self, module: Module, single: _Batch, *, alone: bool) -> list[OperationResult]:
        """Send an operation that failed to a module that answers: it may have come back only in between."""
        try:
            return await self._answered(module, single, alone=alone)
        except ModuleFailure as failure:
            is_away = failure.is_away or await self._is_away(module, single.operations[0])
            kind = UnansweredResult if is_away else OperationResult
            return [kind(op_id=single.op_ids[0], outcome=OperationOutcome.FAILED, error=str(failure))]

    async def _postponed(
        self, module: Module, part: _Batch, failure: ModuleFailure, *, is_over: bool
    ) -> list[OperationResult]:
        """Return results of operations of which some spoil their batch, nobody knows which: none has failed yet.

        Args:
            is_over: Whether all calls with them were answered, so that none is still on its way.
        """
        applied = frozenset(part.op_ids)
        if is_over:
            with suppress(ModuleFailure):
                applied = (await self.look_up(module, part.operations)).applied
        error = f"{NOT_TOLD_APART} {failure}"
        return [
            UnansweredResult(
                op_id=op_id, outcome=OperationOutcome.FAILED, error=error, is_unapplied=op_id not in applied
            )
            for op_id in part.op_ids
        ]

    async def _is_away(self, module: Module, operation: Operation) -> bool:
        """Whether it does not even tell what it has."""
        try:
            await self.look_up(module, [operation], is_probe=True)
        except ModuleFailure:
            return True
        return False

    async def _answered(self, module: Module, batch: _Batch, *, alone: bool) -> list[OperationResult]:
        ids = batch.op_ids

        def in_order(results: list[OperationResult]) -> list[OperationResult]:
            told = [each.op_id for each in results]
            if told != ids:
                raise ValueError(f"{len(ids)} operations from {ids[0]} were sent, and {told[:3]} … were answered")
            return results

        def read_one(text: bytes) -> list[OperationResult]:
            return in_order([_RESULT.validate_json(text)])

        def read_all(text: bytes) -> list[OperationResult]:
            return in_order(_Results.model_validate_json(text).results)

        connection = await self._connect(module)
        texts = [each.json_bytes for each in batch.operations]
        if alone:
            return await connection.call("PUT", f"/operations/{ids[0]}", read_one, texts[0])
        body = b'{"operations":[' + b",".join(texts) + b"]}"
        return await connection.call("POST", "/operations", read_all, body)


@dataclass(slots=True)
class _Batch:
    """Operations of one call."""

    operations: list[Operation] = field(default_factory=list)
    size: int = 0
    """In bytes, as they are written."""

    @property
    def op_ids(self) -> list[str]:
        return [each.op_id for each in self.operations]

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)
        self.size += len(operation.json_bytes)

    def halves(self) -> tuple[_Batch, _Batch]:
        middle = len(self.operations) // 2
        return _Batch(self.operations[:middle]), _Batch(self.operations[middle:])


def _cut(operations: Sequence[Operation], most: int) -> list[_Batch]:
    """Batches of at most so many, which stay below so many bytes unless one operation alone is larger."""
    batches: list[_Batch] = []
    for operation in operations:
        last = batches[-1] if batches else None
        if last is None or len(last.operations) == most or last.size + len(operation.json_bytes) > BATCH_MAX_BYTES:
            batches.append(_Batch())
        batches[-1].add(operation)
    return batches


def _check_apart(operations: Sequence[Operation]) -> None:
    """Operations that share a UPRN must not travel side by side: their order would be anybody's guess."""
    # Purges are about addresses that have no UPRN any more.
    about = [each for each in operations if each.kind is not OperationKind.PURGE]
    uprns = [uprn for each in about for uprn in {each.uprn, each.uprn_2 or each.uprn}]
    if len(set(uprns)) != len(uprns):
        raise ValueError("operations of one call share a UPRN. Send the later one when the earlier one is answered.")
