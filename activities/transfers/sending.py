"""Send the file to the targets of a shard: begin GSE tasks, and poll and save their results until all targets ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.transfers.journal import GseTaskJournal, LockedJournalEntry
from activities.transfers.terminations import TERMINATE_POLL_SECONDS, TargetTerminator
from clients.gse import GseClient, GseFailure, GseForbidden, GseRefused, GseUnavailable
from domain.transfers.gse import (
    LAST_POLL_SECONDS,
    FolderAndFileName,
    GseAgentWithUser,
    GseTransferRequest,
    PollSchedule,
)
from domain.transfers.models import FailureReason, TargetEndAndReason, TransferSpec, TransferState
from domain.transfers.shards import GseTask, ShardProgress, ShardTarget
from infra import log, outages
from stores.transfers.shards import ShardLease

BEGIN_PAUSE_SECONDS = 2.0
"""Pause before GSE is asked again to begin a task that it did not begin, or may not have begun."""
BEGIN_PAUSE_MAX_SECONDS = 60.0
GSE_MARGIN_SECONDS = 60
"""GSE's own timeout of a task comes after the job's deadline, so that the deadline decides."""
SAVE_PAUSE_SECONDS = 0.5
WITHDRAW_SECONDS = 2.0
"""How long a worker that stops may take to save that it has not asked GSE for a task."""
LEASE_CHECK_SECONDS = 2.0
"""A task that GSE is asked for later than this after it was saved needs another look at the lease."""
LEASE_ANSWER_SECONDS = 5.0
"""How long this look may take: it is in the turn of a call, for which others wait."""

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class ShardSpecFileAndDeadlines:
    """What a shard is sent with, beside its targets."""

    spec: TransferSpec
    path: Path
    fetched_at: float
    """When this host had the file."""
    deadline: float
    terminate_wait_seconds: float
    journal_wait_seconds: float
    """How long another process may still be waiting for GSE's answer about a task of this shard."""
    check_file: Callable[[], Awaitable[None]]
    """Reads the whole cached file, and fetches it again if it is damaged."""


class _TurnTooLate(Exception):
    """The job's time was over before it was the turn of a call, which was not made."""


class _LeaseUnknown(Exception):
    """The database did not say in time whether this worker still has the shard; GSE was not asked."""


class ShardSender:
    """Sends one shard from this host."""

    def __init__(
        self,
        gse: GseClient,
        lease: ShardLease,
        journal: GseTaskJournal,
        progress: ShardProgress,
        context: ShardSpecFileAndDeadlines,
    ) -> None:
        self._gse = gse
        self._lease = lease
        self._journal = journal
        self._progress = progress
        self._context = context
        self._terminator = TargetTerminator(gse, progress, context.spec.user)
        self._terminated_tasks: set[int] = set()
        self._unsure_begins = 0
        """How often in a row GSE did not say whether it began a task."""

    @property
    def ended_count(self) -> int:
        """How many targets have ended."""
        return len(self._progress.targets) - len(self._progress.unfinished)

    async def send_until_all_ended_or_deadline(self) -> None:
        """Send until every target has ended, at the deadline at the latest."""
        await self._recover_task_ids_from_journal()
        self._abandon_tasks_of_other_hosts()
        schedule = PollSchedule(len(self._progress.targets))
        while self._progress.unfinished and time.time() < self._context.deadline:
            await self._terminate_broken_tasks()
            await self._end_or_terminate_cancelled()
            begun = await self._begin_task_for_due_targets_and_get_number()
            before = self.ended_count
            await self._poll_active_tasks(except_task=begun)
            await self._save_changed_targets_and_tasks()
            await self._wait_for_poll_or_due_target(
                schedule.advance_to_next_pause(any_just_ended=self.ended_count > before)
            )
        if self._progress.unfinished:
            await self._terminate_and_end_at_deadline()

    async def _recover_task_ids_from_journal(self) -> None:
        """Continue GSE tasks whose ids a process of this host received but could not save before it died."""
        unconfirmed = self._progress.unconfirmed_tasks
        for task in unconfirmed:
            wait = min(self._seconds_left, self._context.journal_wait_seconds)
            if found := await self._journal.read_task_or_wait_while_locked(task.journal_key, wait):
                _log.warning("gse_task_recovered", task_id=found.task_id)
                self._progress.set_id_of_recovered_task_and_unschedule(task, found.task_id, found.answered_at)
        if unconfirmed:
            await self._save_despite_outages_until_deadline()
            for task in unconfirmed:
                self._journal.delete_entry(task.journal_key)

    def _abandon_tasks_of_other_hosts(self) -> None:
        """Give up GSE tasks of a host that is gone; this host sends what they have not delivered."""
        for task in self._progress.active_tasks:
            if task.source.key != self._gse.source_agent.key:
                _log.warning("gse_task_abandoned", task_id=task.task_id, source=task.source.key)
                self._progress.make_targets_due_of_task_without_source(task, time.time())

    async def _end_or_terminate_cancelled(self) -> None:
        """End cancelled targets that no GSE task sends to; ask GSE to terminate the others."""
        targets, held_back = await self._list_cancelled_targets(), self._unterminated_broken_tasks
        unsent = [each for each in targets if each.due_at is not None and each.task_number not in held_back]
        self._progress.end_unsent_targets_as_cancelled(unsent)
        sent = [target for target in targets if not target.state.is_final]
        self._progress.mark_targets_as_being_terminated(sent)
        await self._terminator.request_termination_of_new_targets(sent, self._seconds_left)

    async def _list_cancelled_targets(self) -> list[ShardTarget]:
        keys = await self._lease.list_cancelled_keys()
        return [target for target in self._progress.unfinished if target.key in keys]

    @property
    def _unterminated_broken_tasks(self) -> set[int]:
        """The numbers of broken tasks that GSE was not made to terminate: their targets may still receive the file."""
        broken = {task.number for task in self._progress.active_tasks if task.broken}
        return broken - self._terminated_tasks

    async def _terminate_broken_tasks(self) -> None:
        """Have GSE terminate broken tasks before their targets are sent again, and keep what has arrived meanwhile."""
        for task in self._progress.active_tasks:
            if task.number in self._unterminated_broken_tasks:
                targets = self._progress.list_unfinished_of_task(task)
                # A worker that takes over must not read `terminated` as GSE's own decision.
                await self._save_changed_targets_and_tasks(tasks=True)
                if await self._terminator.try_request_termination(targets, self._seconds_left):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._seconds_left):
                            await self._context.check_file()
                            await self._poll_task_once(task)
                            self._terminated_tasks.add(task.number)

    async def _begin_task_for_due_targets_and_get_number(self) -> int:
        """Begin a GSE task for the targets that are due, and save it before GSE is asked; return its number, or 0."""
        held_back = self._unterminated_broken_tasks
        due = [target for target in self._progress.list_due_targets(time.time()) if target.task_number not in held_back]
        if not due or not self._seconds_left:
            return 0
        task = self._progress.assign_new_task(due, self._gse.source_agent, uuid.uuid4().hex, self._context.fetched_at)
        # The entry exists, and is locked, before another process can read of the task.
        with self._journal.create_and_lock_entry(task.journal_key) as entry:
            asked = asyncio.Event()
            try:
                await self._save_changed_targets_and_tasks(tasks=True)
                await finish_despite_cancellation(self._request_task_and_save(task, due, entry, asked), asked.is_set)
            except asyncio.CancelledError:
                if not asked.is_set():
                    await self._withdraw_task_without_request(task, due, entry)
                raise
        return task.number

    async def _withdraw_task_without_request(
        self, task: GseTask, due: Sequence[ShardTarget], entry: LockedJournalEntry
    ) -> None:
        """Save that GSE was not asked for a task that was saved; if that fails, the next worker sends all the same."""
        if task.number in self._progress.tasks:
            self._progress.remove_task_without_request_and_reschedule(task, time.time())
        self._progress.mark_targets_as_changed(due)  # a save that was cancelled may have begun with them
        try:
            async with asyncio.timeout(WITHDRAW_SECONDS):
                await self._save_changed_targets_and_tasks(tasks=True)
        except Exception as error:  # noqa: BLE001 - the worker stops, whatever the database does
            _log.warning("gse_task_not_withdrawn", error=repr(error))
        else:
            entry.delete_file()

    async def _request_task_and_save(
        self, task: GseTask, due: Sequence[ShardTarget], entry: LockedJournalEntry, asked: asyncio.Event
    ) -> None:
        """Ask GSE to begin a task, and save the result; set `asked` as soon as GSE may get the request."""
        try:
            task_id = await self._begin_task_when_its_turn_comes(due, entry, asked)
            self._progress.set_id_of_accepted_task(task, task_id, time.time())
        except _TurnTooLate:
            self._progress.remove_task_without_request_and_reschedule(task, self._context.deadline)
        except GseRefused as error:
            reason = FailureReason.GSE_REFUSED
            outcome = TargetEndAndReason(state=TransferState.FAILED, reason=reason, code=error.code, message=str(error))
            self._progress.end_targets_not_ended_yet(due, outcome)
        except GseUnavailable as error:
            pause = max(BEGIN_PAUSE_SECONDS, error.retry_after_seconds or 0)
            self._progress.remove_unaccepted_task_and_reschedule(task, time.time() + pause, str(error))
        except GseFailure as error:
            # GSE may have begun the task: each further request may send the file once more.
            pause = min(BEGIN_PAUSE_MAX_SECONDS, BEGIN_PAUSE_SECONDS * 2 ** min(30, self._unsure_begins))
            self._unsure_begins += 1
            self._progress.remove_unaccepted_task_and_reschedule(task, time.time() + pause, str(error))
        else:
            self._unsure_begins = 0
        await self._save_despite_outages_until_deadline()
        entry.delete_file()

    async def _begin_task_when_its_turn_comes(
        self, due: Sequence[ShardTarget], entry: LockedJournalEntry, asked: asyncio.Event
    ) -> str:
        """Ask GSE to begin a task, and return its id. During an outage of the database, it waits outside of its turn.

        Raises:
            _TurnTooLate: The job's time was over first; GSE was not asked.
        """
        while True:
            saved_at = time.monotonic()
            try:
                async with asyncio.timeout(self._seconds_left) as turn:

                    async def require_lease_and_time() -> None:
                        # A worker that waits, or hangs, may be replaced by one that sends to these targets.
                        if time.monotonic() - saved_at > LEASE_CHECK_SECONDS:  # noqa: B023 - called within this round
                            await self._require_lease_within_turn()
                        if not self._seconds_left:
                            raise _TurnTooLate
                        turn.reschedule(None)
                        asked.set()

                    return await self._gse.begin_transfer(
                        self._build_request(due), entry.write_task_id, require_lease_and_time
                    )
            except _LeaseUnknown:
                await self._save_despite_outages_until_deadline()
            except TimeoutError:
                if asked.is_set():
                    raise
                raise _TurnTooLate from None

    async def _require_lease_within_turn(self) -> None:
        try:
            async with asyncio.timeout(LEASE_ANSWER_SECONDS):
                await self._lease.require_held()
        except Exception as error:
            if outages.is_outage(error):
                raise _LeaseUnknown from error
            raise

    async def _poll_active_tasks(self, *, except_task: int) -> None:
        """Poll every active GSE task except the one that has just begun, until the deadline at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_left):
                for task in self._progress.active_tasks:
                    if task.number != except_task:
                        await self._poll_task_once(task)

    async def _poll_task_once(self, task: GseTask) -> None:
        """Ask GSE for the results of unfinished targets, and of the source, without which no target gets anything."""
        agents = [_build_agent(target) for target in self._progress.list_unfinished_of_task(task)]
        if not agents or task.task_id is None:
            return
        try:
            results = await self._gse.get_results(task.task_id, [*agents, task.source], self._target_file)
        except GseRefused as error:
            # The advice of the error is about this call; the targets are, or may be, sent again.
            self._progress.record_query_error(task, error.answered, time.time() + LAST_POLL_SECONDS)
            if not isinstance(error, GseForbidden):
                self._progress.fail_task_if_unknown_for_long(task, error.answered, time.time(), error.code)
        except GseFailure as error:
            # It is down; the next poll asks again.
            self._progress.record_query_error(task, str(error), time.time() + LAST_POLL_SECONDS)
        else:
            self._progress.apply_results(task, results, time.time())

    async def _terminate_and_end_at_deadline(self) -> None:
        """Have GSE terminate unfinished targets, accept successes for a while, then end the rest."""
        asking = self._terminator.request_termination_until_answered(list(self._progress.unfinished))
        terminating = asyncio.create_task(asking)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._context.terminate_wait_seconds):
                    while self._progress.unfinished:
                        await self._poll_tasks_for_late_successes()
                        await asyncio.sleep(TERMINATE_POLL_SECONDS)
        finally:
            terminating.cancel()
            await asyncio.gather(terminating, return_exceptions=True)
        self._progress.mark_targets_as_being_terminated(await self._list_cancelled_targets())
        self._progress.end_unfinished_at_deadline()
        await self._save_changed_targets_and_tasks()

    async def _poll_tasks_for_late_successes(self) -> None:
        # In abandoned tasks only successes count: `terminated` was requested by this process.
        for task in self._progress.active_tasks:
            self._progress.make_targets_due_of_task_without_source(task, time.time())
        for task in self._progress.active_tasks:
            await self._poll_task_once(task)

    async def _save_changed_targets_and_tasks(self, *, tasks: bool = False) -> None:
        changes = self._progress.list_and_clear_changed_targets()
        tasks = tasks or self._progress.has_unsaved_tasks
        self._progress.has_unsaved_tasks = False
        if changes or tasks:
            saved = list(self._progress.tasks.values()) if tasks else None
            await self._lease.write_changes_or_raise_if_lost(changes, saved, self._progress.trouble)

    async def _save_despite_outages_until_deadline(self) -> None:
        """Save changes and tasks, and repeat that during outages of the database until the deadline."""
        changes, tasks = self._progress.list_and_clear_changed_targets(), list(self._progress.tasks.values())
        while True:
            try:
                return await self._lease.write_changes_or_raise_if_lost(changes, tasks, self._progress.trouble)
            except Exception as error:
                if not outages.is_outage(error) or time.time() >= self._context.deadline:
                    raise
                _log.warning("gse_task_not_saved_yet", error=repr(error))
                await asyncio.sleep(SAVE_PAUSE_SECONDS)

    async def _wait_for_poll_or_due_target(self, seconds: float) -> None:
        """Wait until the next poll, but no longer than until a target is due or the deadline."""
        now = time.time()
        held_back = self._unterminated_broken_tasks
        unfinished = [target for target in self._progress.unfinished if target.task_number not in held_back]
        moments = [target.due_at for target in unfinished if target.due_at is not None]
        sooner = min([self._context.deadline, *moments]) - now
        if self._progress.unfinished:
            await asyncio.sleep(max(0.05, min(seconds, sooner)))

    def _build_request(self, targets: Sequence[ShardTarget]) -> GseTransferRequest:
        return GseTransferRequest(
            source=self._gse.source_agent,
            source_file=self._gse.get_cached_file_location_for_agent(self._context.path),
            targets=[_build_agent(target, self._target_user) for target in targets],
            target_file=self._target_file,
            timeout_seconds=GSE_MARGIN_SECONDS + max(1, round(self._context.deadline - time.time())),
        )

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._context.deadline - time.time())

    @property
    def _target_file(self) -> FolderAndFileName:
        return FolderAndFileName(self._context.spec.folder, self._context.spec.signature)

    @property
    def _target_user(self) -> str:
        return self._context.spec.user


async def finish_despite_cancellation(
    step: Coroutine[Any, Any, None], must_finish: Callable[[], bool] = lambda: True
) -> None:
    """Finish a coroutine before a cancellation of the caller, or several, take effect; cancel it while it need not.

    A cancelled caller ends as cancelled, also where the coroutine fails.
    """
    task = asyncio.ensure_future(step)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
            if not must_finish():
                task.cancel()
    if cancellation is not None:
        raise cancellation from (None if task.cancelled() else task.exception())
    task.result()


def _build_agent(target: ShardTarget, user: str = "") -> GseAgentWithUser:
    return GseAgentWithUser(target.agent_id, target.container_id, user)
