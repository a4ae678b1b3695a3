"""The client of the four modules: operations in, results out, one for each, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from pydantic import BaseModel, TypeAdapter

from domain.addresses.operations import AddressPage, Module, Operation, OperationResult, Outcome
from infra.modules.channel import Channel, ModuleFailure
from infra.settings import AddressSettings

IDS_PER_CALL: Final = 1_000


class _Batch(BaseModel):
    operations: list[Operation]


class _Results(BaseModel):
    results: list[OperationResult]


class _Asked(BaseModel):
    address_ids: list[int]


class _InFlight(BaseModel):
    in_flight: list[int]


_RESULT: Final = TypeAdapter(OperationResult)


class Modules:
    """All four, each with limits and a breaker of its own."""

    def __init__(self, settings: AddressSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._channels: dict[Module, Channel] = {}

    async def __aenter__(self) -> Self:
        for module in Module:
            channel = Channel(module, getattr(self._settings.modules, module), self._settings.credentials_folder)
            self._channels[module] = await self._stack.enter_async_context(channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def apply(self, module: Module, operations: Sequence[Operation]) -> list[OperationResult]:
        """Send operations that touch different UPRNs, as many in a call and as many calls at a time as are set.

        The results stand in the order of the operations. A module's fault is a result: `failed`, with the reason.
        """
        _check_apart(operations)
        size: int = getattr(self._settings.modules, module).batch
        batches = [operations[start : start + size] for start in range(0, len(operations), size)]
        answers = await asyncio.gather(*(self._sent(module, batch, alone=size == 1) for batch in batches))
        return [result for answer in answers for result in answer]

    async def addresses(self, module: Module, after: int, limit: int) -> AddressPage:
        """The addresses whose ids follow this one.

        Raises:
            ModuleFailure: The module does not tell.
        """
        path = f"/addresses?after={after}&limit={limit}"
        return await self._channels[module].call("GET", path, AddressPage.model_validate_json)

    async def in_flight(self, module: Module, address_ids: Collection[int]) -> set[int]:
        """Those of the addresses that have orders in flight there. Raises as `addresses` does."""
        asked, found = sorted(address_ids), set[int]()
        for start in range(0, len(asked), IDS_PER_CALL):
            body = _Asked(address_ids=asked[start : start + IDS_PER_CALL]).model_dump_json().encode()
            answer = await self._channels[module].call("POST", "/in-flight", _InFlight.model_validate_json, body)
            found |= set(answer.in_flight)
        return found & set(asked)

    async def _sent(self, module: Module, batch: Sequence[Operation], *, alone: bool) -> list[OperationResult]:
        channel = self._channels[module]

        def in_order(results: list[OperationResult]) -> list[OperationResult]:
            sent, told = [each.op_id for each in batch], [each.op_id for each in results]
            if sent != told:
                raise ValueError(f"{len(sent)} operations from {sent[0]} were sent, and {told[:3]} … were answered")
            return results

        try:
            if alone:
                body = batch[0].model_dump_json(exclude_none=True).encode()
                return await channel.call(
                    "PUT",
                    f"/operations/{batch[0].op_id}",
                    lambda text: in_order([_RESULT.validate_json(text)]),
                    body,
                )
            body = _Batch(operations=list(batch)).model_dump_json(exclude_none=True).encode()
            return await channel.call(
                "POST", "/operations", lambda text: in_order(_Results.model_validate_json(text).results), body
            )
        except ModuleFailure as failure:
            return [OperationResult(op_id=each.op_id, outcome=Outcome.FAILED, error=str(failure)) for each in batch]


def _check_apart(operations: Sequence[Operation]) -> None:
    """Operations that share a UPRN must not travel side by side: their order would be anybody's guess."""
    uprns = [uprn for each in operations for uprn in {each.uprn, each.uprn_2 or each.uprn}]
    if len(set(uprns)) != len(uprns):
        raise ValueError("operations of one call share a UPRN. Send the later one when the earlier one is answered.")
