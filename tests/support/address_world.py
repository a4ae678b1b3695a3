"""A small world for the cycle: the log on PostgreSQL, four modules in plain Python, faults, and deaths anywhere.

It runs the very steps of the cycle, in the order of its plan, and records what every module was asked and did.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import asyncpg
import msgspec

from activities.addresses import delivery
from clients.modules import ModuleFailure
from domain.addresses.activity_models import ApplyStepInput, CyclePhase, CyclePlanResult
from domain.addresses.messages import PublishedMessage, Topic
from domain.addresses.operations import (
    LiveUprnsAndAppliedOps,
    Module,
    Operation,
    OperationOutcome,
    OperationResult,
    UnansweredResult,
)
from domain.addresses.ordering import CycleStep
from infra.address_settings import AddressSettings
from infra.component_settings import DatabaseSettings
from infra.database import Database
from stores.addresses import actions
from stores.addresses import cycle as cycle_store
from stores.addresses.actions import ActorWithReason
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from stores.addresses.search import MessageSearchConditions
from tests.support.address_oracle import ModuleOracle

T = TypeVar("T")


class Death(Exception):
    """The process dies here."""


class Fuse:
    """Makes the process die after a number of steps: nothing works from then on until it is renewed."""

    def __init__(self) -> None:
        self._left: int | None = None
        self.burned = 0

    def set(self, steps: int | None) -> None:
        """Die after this number of steps, or never."""
        self._left = steps

    def burn(self) -> None:
        """One step."""
        self.burned += 1
        if self._left is None:
            return
        if self._left <= 0:
            raise Death
        self._left -= 1


class MortalDatabase(Database):
    """A database whose user may die before a transaction begins, and after it is committed."""

    def __init__(self, settings: DatabaseSettings, fuse: Fuse) -> None:
        super().__init__(settings)
        self._fuse = fuse

    @asynccontextmanager
    async def connection(self, *, beside_pool: bool = False) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """See base class."""
        self._fuse.burn()
        async with super().connection(beside_pool=beside_pool) as connection:
            yield connection
        self._fuse.burn()


class Fault(StrEnum):
    """What goes wrong with a call to a module."""

    AWAY = "away"
    """Nothing is done, no answer."""
    LOST = "lost"
    """It is done, no answer."""
    LATE = "late"
    """No answer; it is applied later, after the call timed out, but before the next call."""


class Effect(NamedTuple):
    """Something that a module did."""

    module: Module
    operation: Operation


@dataclass
class PythonModules:
    """Four modules in plain Python, in the place of those behind HTTP."""

    fuse: Fuse
    books: dict[Module, ModuleOracle] = field(default_factory=lambda: {module: ModuleOracle() for module in Module})
    effects: list[Effect] = field(default_factory=list)
    calls: list[tuple[Module, tuple[str, ...]]] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    """What goes wrong with the calls that come next."""
    broken: set[tuple[Module, int]] = field(default_factory=set)
    """Operations of these UPRNs fail in these modules."""
    on_the_way: list[Effect] = field(default_factory=list)
    results: dict[tuple[Module, str], OperationResult] = field(default_factory=dict)

    async def apply_operations(self, module: Module, operations: Sequence[Operation], /) -> list[OperationResult]:
        """In the place of `clients.modules.Modules.apply`."""
        self.fuse.burn()
        self.calls.append((module, tuple(each.op_id for each in operations)))
        uprns = [uprn for each in operations for uprn in (each.uprn, each.uprn_2) if uprn]
        assert len(uprns) == len(set(uprns)), "operations of one call share a UPRN"
        self.arrive(module)
        fault = self.faults.pop(0) if self.faults else None
        if fault in (Fault.AWAY, Fault.LATE):
            self.on_the_way += [Effect(module, each) for each in operations if fault is Fault.LATE]
            return [
                _build_unapplied_failure(each) if fault is Fault.AWAY else _build_failure(each) for each in operations
            ]
        results = [self._apply_one(module, each) for each in operations]
        self.fuse.burn()
        return [_build_failure(each) for each in operations] if fault is Fault.LOST else results

    async def look_up_operations(self, module: Module, operations: Sequence[Operation], /) -> LiveUprnsAndAppliedOps:
        """In the place of `clients.modules.Modules.lookup`."""
        self.fuse.burn()
        self.arrive(module)
        if self.faults and self.faults.pop(0):
            raise ModuleFailure("There is no answer.", is_transient=True)
        book = self.books[module]
        return LiveUprnsAndAppliedOps(live=frozenset(book.live), applied=frozenset(book.done))

    def arrive(self, *modules: Module) -> None:
        """What was on the way to these modules, or to all, gets there."""
        late, self.on_the_way = self.on_the_way, []
        for effect in late:
            if modules and effect.module not in modules:
                self.on_the_way.append(effect)
            else:
                self._apply_one(effect.module, effect.operation)

    def _apply_one(self, module: Module, operation: Operation) -> OperationResult:
        if {(module, operation.uprn), (module, operation.uprn_2)} & self.broken:
            return _build_failure(operation)
        book = self.books[module]
        missing = [uprn for uprn in (operation.uprn, operation.uprn_2) if uprn and uprn not in book.live]
        kept_before = set(book.logical)
        outcome = book.apply(operation)
        if outcome is OperationOutcome.ALREADY:
            first = self.results[module, operation.op_id]
            again: dict[str, Any] = {"outcome": outcome, "was": first.outcome}
            if book.logical.get(first.logical_address_id or 0, (0, {}))[0] != operation.seq:
                again |= {"logical_address_id": None, "in_flight": False}
            return msgspec.structs.replace(first, **again)
        kept = set(book.logical) - kept_before
        result = OperationResult(
            op_id=operation.op_id,
            outcome=outcome,
            missing=missing if outcome is OperationOutcome.MISSING else [],
            address_id=book.live[operation.uprn][0] if operation.record and operation.uprn in book.live else None,
            logical_address_id=next(iter(kept), None),
            in_flight=bool(kept),
            error="It cannot be." if outcome is OperationOutcome.REFUSED else "",
        )
        if outcome in (OperationOutcome.APPLIED, OperationOutcome.LOGICAL):
            self.effects.append(Effect(module, operation))
            self.results[module, operation.op_id] = result
        return result


def _build_unapplied_failure(operation: Operation) -> OperationResult:
    return UnansweredResult(op_id=operation.op_id, outcome=OperationOutcome.FAILED, error="It is away.")


def _build_failure(operation: Operation) -> OperationResult:
    return OperationResult(op_id=operation.op_id, outcome=OperationOutcome.FAILED, error="There is no answer.")


@dataclass
class RecordedCycle:
    """A cycle as it was recorded: its plan, and which messages were done in which phase, in order."""

    plan: CyclePlanResult
    done: list[tuple[CyclePhase, int]] = field(default_factory=list)
    took: set[int] = field(default_factory=set)


class CycleHarness:
    """The log, the modules, and who moves messages from one to the others."""

    def __init__(self, settings: DatabaseSettings, **changes: Any) -> None:
        self.fuse = Fuse()
        self.settings = AddressSettings(**changes)
        self.database = MortalDatabase(settings, self.fuse)
        self.modules = PythonModules(self.fuse)
        self.cycles: list[RecordedCycle] = []
        self._numbers = itertools.count(1)
        self._inbox = MessageLogAndQuarantineWriter(self.database, 1024)

    async def begin(self, busy: Collection[int] = ()) -> None:
        """An empty log, and empty modules; two of them have orders in flight of some addresses."""
        self.fuse.set(None)
        self.modules = PythonModules(self.fuse)
        for module in (Module.WFM, Module.OD):
            self.modules.books[module].busy = set(busy)
        self.cycles = []
        await self.fetch(
            "TRUNCATE im_infi_addr_sync_log, im_infi_addr_sync_log_his, addr_sync_keys, addr_logical_deletes"
        )

    async def publish(self, messages: Sequence[tuple[Topic, str, dict[str, Any]]]) -> None:
        """Deliver messages: topic, number and what they say."""
        incoming = [
            DeliveredMessage(topic, PublishedMessage(message_id=number, data=msgspec.json.encode(payload)))
            for topic, number, payload in messages
        ]
        await self._inbox.store_messages_or_quarantine_them(incoming)

    async def rows(self) -> dict[int, dict[str, Any]]:
        """Every message, wherever it is, by its id."""
        async with Database.connection(self.database) as connection:
            live = await connection.fetch("SELECT * FROM im_infi_addr_sync_log")
            archived = await connection.fetch("SELECT * FROM im_infi_addr_sync_log_his")
        found = [dict(row) for row in (*live, *archived)]
        by_id = {row["id"]: row for row in found}
        assert len(by_id) == len(found), "a message is both in the log and in its history"
        return by_id

    async def fetch(self, query: str) -> list[asyncpg.Record]:
        """Look into the database."""
        async with Database.connection(self.database) as connection:
            return list(await connection.fetch(query))

    async def cycle(self, deaths: Sequence[int] = (), *, abandon: bool = False) -> bool:
        """One cycle; says whether it came to its end.

        Args:
            deaths: After how many steps each the process dies; each time another takes up what it was doing.
            abandon: The last death ends the cycle, as if it had been terminated.
        """
        lives: list[int | None] = [*deaths, None]
        if abandon:
            lives.pop()
        try:
            self.fuse.set(lives.pop(0))
            await self._cycle(f"cycle-{next(self._numbers)}", lives)
        except* Death:
            ended = False
        else:
            ended = True
        self.fuse.set(None)
        return ended

    async def _cycle(self, cycle_id: str, lives: list[int | None]) -> None:
        plan = await self._run_step(
            lives, lambda: cycle_store.resume_or_begin_cycle(self.database, self.settings, cycle_id)
        )
        cycle = RecordedCycle(plan, took=await self._list_taken(plan.cycle_id))
        self.cycles.append(cycle)
        await self._run_phase(lives, cycle, CyclePhase.SWAP, plan.swaps)
        await self._run_phase(lives, cycle, CyclePhase.WRITE, plan.writes)
        waiting = await self._run_step(
            lives, lambda: cycle_store.list_unfinished_swaps(self.database, self.settings, plan.cycle_id)
        )
        await self._run_phase(lives, cycle, CyclePhase.WAIT, waiting)
        await self._run_phase(lives, cycle, CyclePhase.DELETE, plan.deletes)
        await self._run_step(lives, lambda: delivery.confirm_unconfirmed_messages(self.database, self.modules))
        await self._run_step(lives, lambda: cycle_store.move_done_messages_to_history(self.database))

    async def _run_phase(
        self, lives: list[int | None], cycle: RecordedCycle, phase: CyclePhase, steps: Sequence[CycleStep]
    ) -> None:
        for step in steps:
            order = ApplyStepInput(cycle_id=cycle.plan.cycle_id, phase=phase, step=step)
            try:
                await self._run_step(
                    lives,
                    partial(delivery.check_send_and_record_step, self.database, self.settings, self.modules, order),
                )
            finally:
                ids = [id_ for group in step for id_ in group]
                rows = await self.rows()
                cycle.done += [
                    (phase, id_) for id_ in ids if rows[id_]["proc_flag"] == "Y" and id_ not in self._done_before
                ]

    @property
    def _done_before(self) -> set[int]:
        return {id_ for cycle in self.cycles for _, id_ in cycle.done}

    async def _run_step(self, lives: list[int | None], step: Callable[[], Awaitable[T]]) -> T:
        """Take a step; who dies in the middle of it is followed by another who takes it again."""
        while True:
            try:
                return await step()
            except* Death:
                if not lives:
                    raise
                self.fuse.set(lives.pop(0))

    async def _list_taken(self, cycle_id: str) -> set[int]:
        query = f"SELECT id FROM im_infi_addr_sync_log WHERE cycle_id = '{cycle_id}' AND {cycle_store.OWNED}"  # noqa: S608
        return {row["id"] for row in await self.fetch(query)}

    async def make_all_due(self) -> None:
        """Until everything that waits for its time is due."""
        await self.fetch("UPDATE im_infi_addr_sync_log SET next_attempt_at = now() WHERE next_attempt_at > now()")

    async def retry(self) -> None:
        """What an operator does with all that has failed and is in no cycle."""
        await actions.retry_messages(
            self.database, MessageSearchConditions(), actions.RETRIED_MAX, ActorWithReason("ann", "all is well")
        )

    def count_effects(self) -> Counter[tuple[Module, str]]:
        """How often each message took effect in each module."""
        return Counter((effect.module, effect.operation.op_id) for effect in self.modules.effects)


def change_settings(world: CycleHarness, **changes: Any) -> None:
    """Change settings."""
    world.settings = world.settings.model_copy(update=changes)


async def load_by_number(world: CycleHarness) -> dict[str, dict[str, Any]]:
    """The rows by the numbers of their messages."""
    return {row["msg_no"]: row for row in (await world.rows()).values()}


async def settle(world: CycleHarness) -> None:
    """Run cycles until none loads a message."""
    while await world.cycle() and world.cycles[-1].plan.loaded:
        pass
