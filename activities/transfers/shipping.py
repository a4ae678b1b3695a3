"""Shipping a shard: begin GSE tasks, ask about what is unfinished, write what changes, until every target has ended."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.transfers.journal import Entry, Journal
from clients.gse import GseClient, GseFailure, GseForbidden, GseRefused, GseUnavailable
from domain.transfers.gse import Agent, Place, TransferOrder
from domain.transfers.models import Consignment, End, Reason, State
from domain.transfers.shipment import Item, Sending, Shipment, by_sending
from infra import log, outages
from stores.transfers.shards import ShardLedger

AGAIN_SECONDS = 2.0
"""Pause before GSE is asked again to begin a task that it did not begin, or not for sure."""
UNSURE_PAUSE_MAX_SECONDS = 60.0
GSE_MARGIN_SECONDS = 60
"""GSE's own time for a task ends after ours, so that ours is the one that is told."""
TERMINATE_POLL_SECONDS = 0.5
NOTE_AGAIN_SECONDS = 0.5

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Voyage:
    """What a shipment needs beside its targets."""

    consignment: Consignment
    path: Path
    fetched_at: float
    """When the file was first there."""
    deadline: float
    terminate_wait_seconds: float
    journal_wait_seconds: float
    """How long another process may still be asking GSE for a task of this shard."""
    check_file: Callable[[], Awaitable[None]]
    """Reads the cached file whole, and fetches it again if it is damaged."""


class Shipping:
    """One shard, from this host."""

    def __init__(self, gse: GseClient, ledger: ShardLedger, journal: Journal, shard: Shipment, voyage: Voyage) -> None:
        self._gse = gse
        self._ledger = ledger
        self._journal = journal
        self._shipment = shard
        self._voyage = voyage
        self._given_up: set[int] = set()
        """The cancelled targets that GSE has heard of."""
        self._terminated: set[int] = set()
        self._unsure = 0
        """How often in a row GSE did not say whether it began a task."""

    @property
    def finished(self) -> int:
        """How many targets have ended."""
        return len(self._shipment.items) - len(self._shipment.unfinished)

    async def run(self) -> None:
        """Read this as the story."""
        await self._recover_begun()
        self._strand_what_others_sent()
        cadence = Cadence()
        while self._shipment.unfinished and time.time() < self._voyage.deadline:
            await self._give_up_cancelled()
            await self._give_up_broken()
            begun = await self._send_due()
            before = self.finished
            await self._ask(but=begun)
            await self._write()
            await self._pause(cadence.next_seconds(finishing=self.finished > before))
        if self._shipment.unfinished:
            await self._give_up_late()

    async def _recover_begun(self) -> None:
        """Go on with GSE tasks whose ids a process of this host was told before it died over writing them down."""
        unsettled = self._shipment.unsettled
        for sending in unsettled:
            left = max(0.0, self._voyage.deadline - time.time())
            wait = min(left, self._voyage.journal_wait_seconds)
            if begun := await self._journal.find(sending.journal_key, wait):
                _log.warning("gse_task_recovered", task_id=begun.task_id)
                self._shipment.recover(sending, begun.task_id, begun.told_at)
        if unsettled:
            await self._write_surely()
            for sending in unsettled:
                self._journal.discard(sending.journal_key)

    def _strand_what_others_sent(self) -> None:
        """GSE tasks of a host that is gone: what they have not brought, this one sends."""
        for sending in self._shipment.live:
            if sending.source.key != self._gse.source.key:
                _log.warning("gse_task_stranded", task_id=sending.task_id, source=sending.source.key)
                self._shipment.strand(sending, time.time())

    async def _give_up_cancelled(self) -> None:
        """What is not under way ends at once; what GSE carries ends when GSE says how."""
        keys = await self._ledger.cancelled()
        items = [item for item in self._shipment.unfinished if item.key in keys]
        self._shipment.drop([item for item in items if item.due_at is not None])
        carried = [item for item in items if item.due_at is None]
        self._shipment.cancel(carried)
        untold = [item for item in carried if item.key not in self._given_up]
        if untold and await self._terminate(untold):
            self._given_up.update(item.key for item in untold)

    async def _give_up_broken(self) -> None:
        """What is sent again must not still be on its way; and what has arrived meanwhile is not sent again."""
        for sending in self._shipment.live:
            if sending.broken and sending.number not in self._terminated:
                items = self._shipment.unfinished_in(sending)
                # Whoever takes over must not take `terminated` for GSE's own doing.
                await self._write(sendings=True)
                if await self._terminate(items):
                    await self._voyage.check_file()
                    await self._ask_about(sending)
                    self._terminated.add(sending.number)

    async def _send_due(self) -> int:
        """Begin a GSE task with what is due; its number, or 0. What GSE may hear is written down before it does."""
        held_back = {
            sending.number
            for sending in self._shipment.live
            if sending.broken and sending.number not in self._terminated
        }
        due = [item for item in self._shipment.due(time.time()) if item.sending not in held_back]
        if not due:
            return 0
        sending = self._shipment.begin(due, self._gse.source, uuid.uuid4().hex, self._voyage.fetched_at)
        # The entry is there, and locked, before anybody else can read of the task.
        with self._journal.begin(sending.journal_key) as entry:
            await self._write(sendings=True)
            await uninterrupted(self._begin(sending, due, entry))
        return sending.number

    async def _begin(self, sending: Sending, due: Sequence[Item], entry: Entry) -> None:
        """Ask GSE, and write down what came of it."""
        try:
            self._shipment.began(sending, await self._gse.transfer(self._order(due), entry.note), time.time())
        except GseRefused as error:
            end = End(state=State.FAILED, reason=Reason.GSE_REFUSED, code=error.code, message=str(error))
            self._shipment.end(due, end)
        except GseUnavailable as error:
            pause = max(AGAIN_SECONDS, error.retry_after_seconds or 0)
            self._shipment.began_not(sending, time.time() + pause, str(error))
        except GseFailure as error:
            # It may have begun all the same: each time it is asked for again may bring the file once more.
            pause = min(UNSURE_PAUSE_MAX_SECONDS, AGAIN_SECONDS * 2**self._unsure)
            self._unsure += 1
            self._shipment.began_not(sending, time.time() + pause, str(error))
        else:
            self._unsure = 0
        await self._write_surely()
        entry.discard()

    async def _ask(self, *, but: int) -> None:
        """About every GSE task but the one that has only just begun."""
        # A GSE that hangs must not carry us past the deadline.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._voyage.deadline - time.time())):
                for sending in self._shipment.live:
                    if sending.number != but:
                        await self._ask_about(sending)

    async def _ask_about(self, sending: Sending) -> None:
        """About unfinished targets only, and about the source, without which none of them gets anything."""
        agents = [_agent(item) for item in self._shipment.unfinished_in(sending)]
        if not agents or sending.task_id is None:
            return
        try:
            results = await self._gse.results(sending.task_id, [*agents, sending.source], self._target_file)
        except GseRefused as error:
            # The advice of a refusal is for what was asked; its targets are sent again, or may be.
            self._shipment.unheard(sending, error.answered)
            if not isinstance(error, GseForbidden):
                self._shipment.refused(sending, error.answered, time.time(), error.code)
        except GseFailure as error:
            self._shipment.unheard(sending, str(error))  # it is down; the next poll asks again
        else:
            self._shipment.take(sending, results, time.time())

    async def _give_up_late(self) -> None:
        """The time is over: terminate the rest, and believe what still arrives, whether GSE hears that or hangs."""
        terminating = asyncio.create_task(self._terminate_until_heard(list(self._shipment.unfinished)))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._voyage.terminate_wait_seconds):
                    while self._shipment.unfinished:
                        await self._ask_late()
                        await asyncio.sleep(TERMINATE_POLL_SECONDS)
        finally:
            terminating.cancel()
            await asyncio.gather(terminating, return_exceptions=True)
        self._shipment.end_late()
        await self._write()

    async def _terminate_until_heard(self, items: Sequence[Item]) -> None:
        while True:
            if await self._terminate(items):
                return
            await asyncio.sleep(TERMINATE_POLL_SECONDS)

    async def _ask_late(self) -> None:
        """Only a success counts now: that GSE says `terminated` is our own doing."""
        for sending in self._shipment.live:
            self._shipment.strand(sending, time.time())
        for sending in self._shipment.live:
            await self._ask_about(sending)

    async def _terminate(self, items: Sequence[Item]) -> bool:
        """Ask GSE to give targets up; whether it heard. What it refuses to give up, it does not have."""
        try:
            for sending, some in by_sending(items, self._shipment.sendings):
                await self._terminate_in(sending, [_agent(item, self._user) for item in some])
        except GseFailure:
            return False
        return True

    async def _terminate_in(self, sending: Sending, agents: Sequence[Agent]) -> None:
        """One agent that GSE does not know spoils the call for all: what is refused is asked for in halves."""
        try:
            await self._gse.terminate(sending.task_id or "", agents)
        except GseRefused as error:
            if len(agents) == 1:
                _log.warning("gse_terminate_refused", task_id=sending.task_id, error=str(error))
                return
            middle = len(agents) // 2
            await self._terminate_in(sending, agents[:middle])
            await self._terminate_in(sending, agents[middle:])

    async def _write(self, *, sendings: bool = False) -> None:
        changes = self._shipment.changes()
        sendings = sendings or self._shipment.has_new_times
        self._shipment.has_new_times = False
        if changes or sendings:
            await self._ledger.write(changes, list(self._shipment.sendings.values()) if sendings else None)

    async def _write_surely(self) -> None:
        """Write what GSE was asked for, again while the database is away: other hosts know of nothing else."""
        changes, sendings = self._shipment.changes(), list(self._shipment.sendings.values())
        while True:
            try:
                return await self._ledger.write(changes, sendings)
            except Exception as error:
                if not outages.is_outage(error) or time.time() >= self._voyage.deadline:
                    raise
                _log.warning("gse_task_not_noted_yet", error=repr(error))
                await asyncio.sleep(NOTE_AGAIN_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Until the next poll; sooner if a target is due before, or the time is over."""
        now = time.time()
        moments = [item.due_at for item in self._shipment.unfinished if item.due_at is not None]
        sooner = min([self._voyage.deadline, *moments]) - now
        if self._shipment.unfinished:
            await asyncio.sleep(max(0.05, min(seconds, sooner)))

    def _order(self, items: Sequence[Item]) -> TransferOrder:
        return TransferOrder(
            source=self._gse.source,
            source_file=self._gse.source_place(self._voyage.path),
            targets=[_agent(item, self._user) for item in items],
            target_file=self._target_file,
            timeout_seconds=GSE_MARGIN_SECONDS + max(1, round(self._voyage.deadline - time.time())),
        )

    @property
    def _target_file(self) -> Place:
        return Place(self._voyage.consignment.folder, self._voyage.consignment.signature)

    @property
    def _user(self) -> str:
        return self._voyage.consignment.user


async def uninterrupted(step: Coroutine[Any, Any, None]) -> None:
    """Finish a step before a cancellation of the caller takes effect."""
    task = asyncio.ensure_future(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _agent(item: Item, user: str = "") -> Agent:
    return Agent(item.agent_id, item.container_id, user)


FIRST_SECONDS = 1.0
LAST_SECONDS = 10.0
_LADDER = ((FIRST_SECONDS, 2), (2.0, 9), (5.0, 56))


class Cadence:
    """The pauses between the polls of one shard."""

    def __init__(self) -> None:
        self._pauses = _pauses()

    def next_seconds(self, *, finishing: bool) -> float:
        """The pause before the next poll.

        Args:
            finishing: Whether targets have finished since the last one: then others are about to.
        """
        if finishing:
            self._pauses = _pauses()
        return next(self._pauses)


def _pauses() -> Iterator[float]:
    ladder = (itertools.repeat(seconds, times) for seconds, times in _LADDER)
    return itertools.chain(itertools.chain.from_iterable(ladder), itertools.repeat(LAST_SECONDS))
