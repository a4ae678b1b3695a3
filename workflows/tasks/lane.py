"""The lane workflow: applies batches, expires leases, and saves checkpoints until all its tasks are archived."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.tasks.activities import LaneActivities
    from domain.tasks import names
    from domain.tasks.activity_models import CloseLaneInput, FinishedTaskCounts, LaneInput, LanePassedByTypeResult
    from domain.tasks.lane import PACE, CheckpointSchedule, Lane
    from domain.tasks.messages import (
        LaneBatch,
        LaneBatchReply,
        LaneStatus,
        TaskLookup,
        TaskLookupReply,
        TaskSearch,
        TaskSearchReply,
    )
    from workflows.activity_calls import PROMPT_ACTIVITY
    from workflows.run_length import is_run_long


RUN_BATCHES_LIMIT = 1_900
"""A run that waits for a checkpoint continues as new after this many batches at the latest: Temporal accepts 2,000."""
RUN_BYTES_LIMIT = 16_000_000
RUN_EVENTS_LIMIT = 1_500
"""So does one with such a history, as a worker that takes it over has to replay it in time; see `run_length`."""
REPLY_BYTES_MAX = 300_000
"""A lane does not continue as new in a message with more reply bytes: together they must stay below 4 MiB."""
LEASE_STEP_MS = 250
SOON_MS = 10


@workflow.defn(name=names.LANE_WORKFLOW)
class TaskLane:
    """The tasks of one position of a type, from the first to the last."""

    @workflow.init
    def __init__(self, lane: LaneInput) -> None:
        self._input = lane
        self._lane = Lane(lane.rules, lane.carried)
        self._schedule = CheckpointSchedule(PACE)
        self._checkpoint: asyncio.Task[None] | None = None
        self._batches = 0

    @workflow.run
    async def run(self, lane: LaneInput) -> FinishedTaskCounts:
        """Serve batches until the lane is full and all its tasks are archived."""
        while not self._is_done():
            await self._wait_for_next_event()
            self._lane.state.advance_clock(_get_now_ms())
            if self._should_continue_as_new():
                workflow.continue_as_new(self._build_next_input())
            if self._is_checkpoint_due():
                self._checkpoint = asyncio.create_task(self._save_checkpoint())
        await workflow.execute_activity_method(
            LaneActivities.remove_open_lane,
            CloseLaneInput(type=lane.type, pos=lane.pos),
            **PROMPT_ACTIVITY,
            summary="close",
        )
        return self._lane.count_all_finished_tasks()

    @workflow.update(name=names.APPLY_BATCH)
    def apply_batch(self, batch: LaneBatch) -> LaneBatchReply:
        """Apply a batch. It never awaits, so no batch is half applied when the lane continues as new."""
        self._batches += 1
        return self._lane.apply_batch(batch, _get_now_ms())

    @workflow.query(name=names.LOOK_UP)
    def look_up(self, lookup: TaskLookup) -> TaskLookupReply:
        """Return tasks by key."""
        return self._lane.find_tasks(lookup)

    @workflow.query(name=names.SEARCH)
    def search(self, search: TaskSearch) -> TaskSearchReply:
        """Return tasks by their properties."""
        return self._lane.search_tasks(search)

    @workflow.query
    def status(self) -> LaneStatus:
        """Return the counters for people."""
        return self._lane.build_status()

    async def _wait_for_next_event(self) -> None:
        """Wait until a lease expires, a checkpoint is due, or the run ends or continues as new."""
        at = self._get_next_event_time()
        left = None if at is None else (at - _get_now_ms()) / 1_000
        if left is not None and left <= 0:
            return
        # A lane that an operator cancels goes on, because its tasks belong to others.
        with suppress(asyncio.TimeoutError, asyncio.CancelledError):
            await workflow.wait_condition(lambda: self._must_wake_before(at), timeout=left)

    def _get_next_event_time(self) -> int | None:
        """Return when a lease expires or a checkpoint is due; ends of leases are rounded up, to expire many at once."""
        lease_end = self._lane.state.next_lease_end
        times = [] if lease_end is None else [-(-lease_end // LEASE_STEP_MS) * LEASE_STEP_MS]
        if is_run_long():
            # It waits for the checkpoint under way, or until the replies of this moment have been sent.
            times += [] if self._should_delay_next_run_for_checkpoint() else [_get_now_ms() + SOON_MS]
        elif (
            self._checkpoint is None
            and (next_time := self._schedule.get_next_checkpoint_time(self._lane.state)) is not None
        ):
            times.append(next_time)
        return min(times, default=None)

    def _must_wake_before(self, at: int | None) -> bool:
        earlier = self._get_next_event_time()
        is_earlier = earlier is not None and (at is None or earlier < at)
        is_near = self._schedule.pace.early_ms > 0 and self._is_checkpoint_due()
        return is_earlier or is_near or self._is_done() or self._should_continue_as_new()

    def _is_done(self) -> bool:
        return self._checkpoint is None and self._lane.is_closed_to_creates_and_empty

    def _should_continue_as_new(self) -> bool:
        """Return whether the run is long, and no checkpoint is under way that it can still wait for."""
        if not is_run_long() or self._lane.get_reply_bytes_sent_at(_get_now_ms()) > REPLY_BYTES_MAX:
            return False
        return not self._should_delay_next_run_for_checkpoint()

    def _should_delay_next_run_for_checkpoint(self) -> bool:
        info = workflow.info()
        return (
            self._checkpoint is not None
            and self._batches < RUN_BATCHES_LIMIT
            and info.get_current_history_size() < RUN_BYTES_LIMIT
            and info.get_current_history_length() < RUN_EVENTS_LIMIT
        )

    def _build_next_input(self) -> LaneInput:
        rules = self._lane.state.rules
        return LaneInput(type=self._input.type, pos=self._input.pos, rules=rules, carried=self._lane.build_snapshot())

    def _is_checkpoint_due(self) -> bool:
        return self._checkpoint is None and not is_run_long() and self._schedule.is_due(self._lane.state, _get_now_ms())

    async def _save_checkpoint(self) -> None:
        """Save head and ended tasks, and remove these tasks only after that."""
        checkpoint = self._schedule.begin_and_collect_checkpoint(
            self._lane.state, self._input.type, self._input.pos, _get_now_ms()
        )
        result: LanePassedByTypeResult = await workflow.execute_activity_method(
            LaneActivities.save_checkpoint,
            checkpoint,
            **PROMPT_ACTIVITY,
            summary=f"archive {len(checkpoint.ended)}",
        )
        self._lane.state.remove_archived([task.key for task in checkpoint.ended])
        if result.is_past:
            self._lane.state.refuse_creates_permanently()
        self._checkpoint = None
        self._show_counters_in_web_ui()

    def _show_counters_in_web_ui(self) -> None:
        """Show the counters in Temporal's web UI."""
        head = self._lane.state.build_head()
        workflow.set_current_details(
            f"{head.pending:,} pending, {head.running:,} running, {head.success:,} succeeded, {head.failed:,} failed"
            + (f", {head.cancelled:,} cancelled" if head.cancelled else "")
            + (", takes no more" if head.full else "")
        )


def _get_now_ms() -> int:
    return round(workflow.time() * 1_000)
