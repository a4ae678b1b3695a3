"""Sending a shard: what is asked of GSE where it refuses, forgets or hangs, and what a cancellation interrupts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from activities.transfers import sending
from activities.transfers.journal import GseTaskJournal
from activities.transfers.sending import ShardSender, ShardSpecFileAndDeadlines, finish_despite_cancellation
from clients.gse import GseClient, GseFailure, GseForbidden, GseRefused
from domain.transfers.gse import FolderAndFileName, GseAgentWithUser, GseRecordsByAgent, GseTransferRequest
from domain.transfers.models import (
    CANCELLED,
    CANCELLED_LATE,
    LATE,
    NOT_ASKED,
    FailureReason,
    TransferSpec,
    TransferState,
)
from domain.transfers.shards import REFUSALS_MIN, GseTask, RetryAndSilenceLimits, ShardProgress, ShardTarget
from infra.database import Database
from stores.transfers.shards import ShardLease, ShardLeaseLost

SOURCE = GseAgentWithUser("source")
RULES = RetryAndSilenceLimits(retries=2, retry_pause_seconds=5)


class RefusingGse:
    """A GSE that refuses or hangs."""

    source_agent = SOURCE

    def __init__(self, refusal: GseFailure | None = None) -> None:
        self.refusal = refusal
        self.terminations: list[int] = []
        self.on_begin: Callable[[], None] = lambda: None
        self.turns = 0
        self.has_free_turn = True
        self.begun = 0

    def get_cached_file_location_for_agent(self, cached: Path) -> FolderAndFileName:
        """As it is."""
        return FolderAndFileName(str(cached.parent), cached.name)

    async def begin_transfer(
        self, request: GseTransferRequest, _on_task_id: Any, before_sending: Callable[[], Awaitable[None]]
    ) -> str:
        """Begin, after a wait for the turn of this call."""
        if not self.has_free_turn:
            await asyncio.Event().wait()
        self.turns += 1
        self.on_begin()
        await before_sending()
        self.begun += len(request.targets)
        return "gse-2"

    async def request_termination(self, _task_id: str, agents: Sequence[GseAgentWithUser]) -> None:
        """Refuse, or never answer."""
        self.terminations.append(len(agents))
        if self.refusal:
            raise self.refusal
        await asyncio.Event().wait()

    async def get_results(self, *_: Any) -> Any:
        """Never answer."""
        await asyncio.Event().wait()


class CancelledLease:
    """A shard all of whose targets are cancelled."""

    def __init__(self, targets: Sequence[ShardTarget]) -> None:
        self.targets = targets
        self.is_lost = False
        self.outages = 0
        self.hangs_once = False
        self.saved_tasks = list[int]()

    async def list_cancelled_keys(self) -> set[int]:
        """All of them."""
        return {target.key for target in self.targets}

    async def require_held(self) -> None:
        """Say so, unless the lease is lost or the database is away."""
        if self.outages:
            self.outages -= 1
            raise ConnectionError
        if self.is_lost:
            raise ShardLeaseLost

    async def write_changes_or_raise_if_lost(
        self, _targets: Any, tasks: Sequence[GseTask] | None = None, _trouble: Any = None
    ) -> None:
        """Take them, unless the lease is lost or the database is away, or hangs."""
        if self.hangs_once:
            self.hangs_once = False
            await asyncio.Event().wait()
        await self.require_held()
        if tasks is not None:
            self.saved_tasks = [task.number for task in tasks]


def start_shard(gse: RefusingGse, tmp_path: Path, seconds: float = 60) -> tuple[ShardProgress, ShardSender]:
    """A shard of eight targets that GSE sends to, and this many seconds until its deadline."""
    progress = ShardProgress([ShardTarget(key, f"0:{key}", "") for key in range(8)], RULES)
    progress.set_id_of_accepted_task(progress.assign_new_task(progress.targets, SOURCE), "gse-1")

    async def check_file() -> None:
        pass

    context = ShardSpecFileAndDeadlines(
        spec=TransferSpec(project_id="p", signature="a" * 64, user="root", folder="/data"),
        path=tmp_path,
        fetched_at=0,
        deadline=time.time() + seconds,
        terminate_wait_seconds=0.1,
        journal_wait_seconds=0,
        check_file=check_file,
    )
    lease = cast("ShardLease", CancelledLease(progress.targets))
    return progress, ShardSender(cast("GseClient", gse), lease, GseTaskJournal(tmp_path), progress, context)


def start_due_shard(gse: RefusingGse, tmp_path: Path, seconds: float = 60) -> tuple[ShardProgress, ShardSender]:
    """A shard whose targets are to be sent again."""
    progress, sender = start_shard(gse, tmp_path, seconds)
    progress.make_targets_due_of_task_without_source(progress.tasks[1], 0)
    sender._terminated_tasks.add(1)
    return progress, sender


@pytest.mark.parametrize(
    ("refusal", "refused_results", "calls"),
    [(GseRefused("no such agent"), 0, 15), (GseForbidden("who?"), 0, 1), (GseRefused("no such task"), REFUSALS_MIN, 1)],
    ids=["agents", "keys", "task"],
)
async def test_a_refused_termination_is_split_where_an_agent_may_be_the_cause(
    tmp_path: Path, refusal: GseFailure, refused_results: int, calls: int
) -> None:
    """Keys and tasks that GSE does not know are refused for every agent: hundreds of calls would say nothing new."""
    gse = RefusingGse(refusal)
    progress, sender = start_shard(gse, tmp_path)
    for at in range(refused_results):
        progress.fail_task_if_unknown_for_long(progress.tasks[1], "", at)
    await sender._end_or_terminate_cancelled()

    assert len(gse.terminations) == calls


async def test_a_gse_that_hangs_does_not_delay_the_end(tmp_path: Path) -> None:
    """Whether it is asked for results, or to terminate what is cancelled."""
    progress, sender = start_shard(RefusingGse(), tmp_path, seconds=0.2)
    async with asyncio.timeout(10):
        await sender.send_until_all_ended_or_deadline()

    assert {target.state for target in progress.targets} == {TransferState.FAILED}


@pytest.mark.parametrize(("is_lost", "begun"), [(True, 0), (False, 8)])
async def test_a_worker_that_was_replaced_while_it_waited_for_its_turn_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool, begun: int
) -> None:
    """The other worker may have waited for it in vain, and sends to the same targets."""
    monkeypatch.setattr(sending, "LEASE_CHECK_SECONDS", -1.0)
    gse = RefusingGse()
    _, sender = start_due_shard(gse, tmp_path)
    lease = cast("CancelledLease", sender._lease)
    gse.on_begin = lambda: setattr(lease, "is_lost", is_lost)
    with pytest.raises(ShardLeaseLost) if is_lost else nullcontext():
        await sender._begin_task_for_due_targets_and_get_number()

    assert gse.begun == begun


async def test_an_outage_of_the_database_is_waited_for_outside_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else polls and terminations would have no turn meanwhile; and a task without an id would count as begun."""
    monkeypatch.setattr(sending, "LEASE_CHECK_SECONDS", -1.0)
    monkeypatch.setattr(sending, "SAVE_PAUSE_SECONDS", 0.01)
    gse = RefusingGse()
    _, sender = start_due_shard(gse, tmp_path)
    lease = cast("CancelledLease", sender._lease)
    gse.on_begin = lambda: setattr(lease, "outages", 2 * (gse.turns == 1))
    await sender._begin_task_for_due_targets_and_get_number()

    assert (gse.begun, gse.turns, lease.outages) == (8, 2, 0)


@pytest.mark.parametrize("was_sent", [False, True])
@pytest.mark.parametrize("hangs", [False, True], ids=["turn", "save"])
async def test_a_worker_that_is_stopped_before_it_asks_gse_takes_the_task_back(
    tmp_path: Path, hangs: bool, was_sent: bool
) -> None:
    """It need not wait for the turn, and its targets are not said to be asked of GSE when they are cancelled then."""
    gse = RefusingGse()
    gse.has_free_turn = False
    progress, sender = start_due_shard(gse, tmp_path)
    lease = cast("CancelledLease", sender._lease)
    lease.hangs_once = hangs
    for target in progress.targets:
        target.task_number = target.failed_in = int(was_sent)
    beginning = asyncio.create_task(sender._begin_task_for_due_targets_and_get_number())
    await asyncio.sleep(0.05)
    beginning.cancel()
    await asyncio.wait([beginning], timeout=5)
    progress.end_unsent_targets_as_cancelled(progress.targets)

    assert (beginning.cancelled(), gse.begun, lease.saved_tasks) == (True, 0, [1])
    assert {target.message for target in progress.targets} == {CANCELLED}
    assert list(tmp_path.iterdir()) == []


async def test_a_worker_that_is_stopped_during_an_outage_stops(tmp_path: Path) -> None:
    """The next one finds the task without an id, and sends to its targets."""
    gse = RefusingGse()
    gse.has_free_turn = False
    _, sender = start_due_shard(gse, tmp_path)
    beginning = asyncio.create_task(sender._begin_task_for_due_targets_and_get_number())
    await asyncio.sleep(0.05)
    cast("CancelledLease", sender._lease).outages = 99
    beginning.cancel()
    await asyncio.wait([beginning], timeout=5)

    assert (beginning.cancelled(), gse.begun) == (True, 0)
    assert len(list(tmp_path.iterdir())) == 1


class HangingDatabase:
    """A database that answers nothing any more, not even a rollback."""

    async def look_up(self, *_: Any) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    execute = look_up

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[HangingDatabase]:
        """Lend one that was opened before."""
        yield self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin as if nothing were, and wait for ever for the end."""
        try:
            yield
        finally:
            await asyncio.Event().wait()


async def test_a_database_that_hangs_holds_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All other calls to GSE of this worker wait for it."""
    monkeypatch.setattr(sending, "LEASE_ANSWER_SECONDS", 0.05)
    _, sender = start_due_shard(RefusingGse(), tmp_path)
    sender._lease = ShardLease(cast("Database", HangingDatabase()), "job", 1, "holder")
    asking = asyncio.create_task(sender._require_lease_within_turn())
    await asyncio.wait([asking], timeout=5)
    is_done = asking.done()
    asking.cancel()

    assert is_done
    with pytest.raises(sending._LeaseUnknown):
        asking.result()


class ObedientGse(RefusingGse):
    """A GSE that takes each termination, and has nothing to report yet."""

    async def request_termination(self, _task_id: str, agents: Sequence[GseAgentWithUser]) -> None:
        """Accept."""
        self.terminations.append(len(agents))

    async def get_results(self, *_: Any) -> GseRecordsByAgent:
        """Report nothing."""
        return GseRecordsByAgent(None, {})


async def test_what_is_cancelled_of_a_host_that_is_lost_is_terminated_in_gse(tmp_path: Path) -> None:
    """Its agent may go on sending: nothing says that the file does not arrive."""
    gse = ObedientGse()
    gse.source_agent = GseAgentWithUser("another")
    progress, sender = start_shard(gse, tmp_path)
    async with asyncio.timeout(10):
        await sender.send_until_all_ended_or_deadline()

    assert (gse.terminations, gse.begun) == ([8], 0)
    assert {(each.reason, each.message) for each in progress.targets} == {(FailureReason.CANCELLED, CANCELLED_LATE)}


@pytest.mark.parametrize(("was_sent", "message"), [(False, CANCELLED), (True, CANCELLED_LATE)])
async def test_what_is_cancelled_ends_as_cancelled_at_the_deadline_too(
    tmp_path: Path, was_sent: bool, message: str
) -> None:
    """A worker may have taken the shard over then only, or waited for GSE since it was cancelled."""
    progress, sender = start_shard(ObedientGse(), tmp_path, seconds=-1)
    for target in progress.targets:
        target.task_number = int(was_sent)
    async with asyncio.timeout(10):
        await sender.send_until_all_ended_or_deadline()

    assert {(each.reason, each.message) for each in progress.targets} == {(FailureReason.CANCELLED, message)}


@pytest.mark.parametrize("has_free_turn", [True, False], ids=["late", "never"])
@pytest.mark.parametrize(("was_sent", "message"), [(False, NOT_ASKED), (True, LATE)])
async def test_gse_is_not_asked_to_send_when_the_time_is_over(
    tmp_path: Path, has_free_turn: bool, was_sent: bool, message: str
) -> None:
    """Its turn came too late, or not at all: other GSE tasks of the shard are then polled and terminated in time."""
    gse = RefusingGse()
    gse.has_free_turn = has_free_turn
    gse.on_begin = lambda: time.sleep(0.3)
    progress, sender = start_due_shard(gse, tmp_path, seconds=0.2)
    if not was_sent:
        progress.tasks.clear()
        for target in progress.targets:
            target.task_number = 0
    async with asyncio.timeout(10):
        await sender._begin_task_for_due_targets_and_get_number()
    tasks = list(progress.tasks)
    progress.end_unfinished_at_deadline()

    assert (gse.begun, progress.trouble, tasks) == (0, None, [1] * was_sent)
    assert {(each.state, each.reason, each.message) for each in progress.targets} == {
        (TransferState.TIMEOUT, FailureReason.DEADLINE, message)
    }


async def test_a_step_is_finished_however_often_it_is_cancelled() -> None:
    """A heartbeat that is late and a worker that stops each cancel an activity; the id of a GSE task is saved first."""
    go_on, steps = asyncio.Event(), list[str]()

    async def ask_and_save() -> None:
        await go_on.wait()
        steps.append("saved")

    asking = asyncio.create_task(finish_despite_cancellation(ask_and_save()))
    for _ in range(3):
        await asyncio.sleep(0)
        asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert steps == ["saved"]


async def test_a_step_that_fails_after_it_was_cancelled_ends_as_cancelled() -> None:
    """Else the engine would take the outage of a database for the end of the activity."""
    go_on = asyncio.Event()

    async def ask_and_fail() -> None:
        await go_on.wait()
        raise ConnectionError

    asking = asyncio.create_task(finish_despite_cancellation(ask_and_fail()))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await asking

    assert isinstance(caught.value.__cause__, ConnectionError)
