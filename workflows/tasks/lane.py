"""The plan of a lane: do what groups ask, take tasks back whose lease is over, and have those archived that ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.tasks.steps import TaskSteps
    from domain.tasks import names
    from domain.tasks.carrying import CloseOrder, Kept, LaneEnd, LaneOrder
    from domain.tasks.keeping import FIRST_PACE, PACE, Keeping
    from domain.tasks.lane import Lane
    from domain.tasks.messages import Found, Group, GroupReply, LaneStatus, Look, Search, Seen
    from workflows.activity_calls import PROMPT_ACTIVITY


RUN_GROUPS_MAX = 1_500
"""Temporal takes 2,000 updates of one run."""
RUN_GROUPS_AT_MOST = 1_900
"""A run that waits for the archive goes on so far, and no farther."""
GIVEN_MAX_BYTES = 300_000
"""A lane is not carried on in a message that has so much else in it: together they must stay below 4 MiB."""
LEASE_STEP_MS = 250
SOON_MS = 10


@workflow.defn(name=names.LANE_WORKFLOW)
class TaskLane:
    """The tasks of one position of a type, from the first to the last."""

    @workflow.init
    def __init__(self, order: LaneOrder) -> None:
        self._order = order
        self._lane = Lane(order.rules, order.carried)
        self._keeping = Keeping(PACE if workflow.patched("paced") else FIRST_PACE)
        self._keeper: asyncio.Task[None] | None = None
        self._groups = 0

    @workflow.run
    async def run(self, order: LaneOrder) -> LaneEnd:
        """Read this as the story."""
        while not self._is_done():
            await self._wait()
            self._lane.book.tick(_now())
            if self._may_continue_as_new():
                workflow.continue_as_new(self._successor())
            if self._is_keeping_due():
                self._keeper = asyncio.create_task(self._keep())
        await workflow.execute_activity_method(
            TaskSteps.close,
            CloseOrder(type=order.type, pos=order.pos),
            **PROMPT_ACTIVITY,
            summary="close",
        )
        return self._lane.end()

    @workflow.update(name=names.ACT)
    def act(self, group: Group) -> GroupReply:
        """Do what a group asks. It never waits, so that no group is half done when the lane is carried on."""
        self._groups += 1
        return self._lane.act(group, _now())

    @workflow.query(name=names.LOOK)
    def look(self, look: Look) -> Seen:
        """Tasks by key."""
        return self._lane.look(look)

    @workflow.query(name=names.SEARCH)
    def search(self, search: Search) -> Found:
        """Tasks by their properties."""
        return self._lane.search(search)

    @workflow.query
    def status(self) -> LaneStatus:
        """How the lane stands, for people."""
        return self._lane.status()

    async def _wait(self) -> None:
        """Until there is something to do that no group asks for."""
        at = self._next_at()
        left = None if at is None else (at - _now()) / 1_000
        if left is not None and left <= 0:
            return
        # A lane that is cancelled by hand goes on: its tasks are others'.
        with suppress(asyncio.TimeoutError, asyncio.CancelledError):
            await workflow.wait_condition(lambda: self._is_called_before(at), timeout=left)

    def _next_at(self) -> int | None:
        """When a lease is over, or something is to be written down; leases end in steps, many at a time."""
        lease_end = self._lane.book.next_lease_end
        times = [] if lease_end is None else [-(-lease_end // LEASE_STEP_MS) * LEASE_STEP_MS]
        if self._is_long():
            # It waits for the step that is under way, or else until all that was given now has left.
            times += [] if self._keeper else [_now() + SOON_MS]
        elif self._keeper is None and (keep_at := self._keeping.next_at(self._lane.book)) is not None:
            times.append(keep_at)
        return min(times, default=None)

    def _is_called_before(self, at: int | None) -> bool:
        earlier = self._next_at()
        is_earlier = earlier is not None and (at is None or earlier < at)
        is_near = self._keeping.pace.early_ms > 0 and self._is_keeping_due()
        return is_earlier or is_near or self._is_done() or self._may_continue_as_new()

    def _is_done(self) -> bool:
        return self._keeper is None and self._lane.is_done

    def _is_long(self) -> bool:
        """Whether the run has lasted long enough for its history."""
        return self._groups >= RUN_GROUPS_MAX or workflow.info().is_continue_as_new_suggested()

    def _may_continue_as_new(self) -> bool:
        """Whether it is time, and nothing is under way that would have to be done again."""
        if not self._is_long() or self._lane.given_bytes(_now()) > GIVEN_MAX_BYTES:
            return False
        return self._keeper is None or self._groups >= RUN_GROUPS_AT_MOST

    def _successor(self) -> LaneOrder:
        rules = self._lane.book.rules
        return LaneOrder(type=self._order.type, pos=self._order.pos, rules=rules, carried=self._lane.carry())

    def _is_keeping_due(self) -> bool:
        return self._keeper is None and not self._is_long() and self._keeping.is_due(self._lane.book, _now())

    async def _keep(self) -> None:
        """Have written down what is new; only then forget those that have ended."""
        keep = self._keeping.begin(self._lane.book, self._order.type, self._order.pos, _now())
        kept: Kept = await workflow.execute_activity_method(
            TaskSteps.keep,
            keep,
            **PROMPT_ACTIVITY,
            summary=f"archive {len(keep.ended)}",
        )
        self._lane.book.drop([task.key for task in keep.ended])
        if kept.is_past:
            self._lane.book.fill()
        self._keeper = None
        self._tell()

    def _tell(self) -> None:
        """Show in the Web UI how the lane stands."""
        head = self._lane.book.head()
        workflow.set_current_details(
            f"{head.pending:,} pending, {head.running:,} running, {head.success:,} succeeded, {head.failed:,} failed"
            + (f", {head.cancelled:,} cancelled" if head.cancelled else "")
            + (", takes no more" if head.full else "")
        )


def _now() -> int:
    return round(workflow.time() * 1_000)
