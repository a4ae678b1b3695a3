"""Observations of a world of tasks that tests write themselves, event by event."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.worlds.flaws import Flaw
from tests.worlds.tasks.judging import judge_world
from tests.worlds.tasks.options import plain_row
from tests.worlds.tasks.seen import (
    CANCELLED,
    FAILED,
    PENDING,
    SUCCESS,
    CreatedTask,
    FinalTask,
    HeldLease,
    HoldAttempt,
    SentResult,
    TaskObservations,
)
from tests.worlds.tasks.world import (
    LEASE_SECONDS,
    PlannedTask,
    TaskWorld,
)
from tests.worlds.verdict import Ending

FIRST, SECOND = "first_kind_1", "second_kind_1"
TOO_LATE = 8041
TICK = 0.01
BROKEN = "broken"


def make_world(*flaws: str) -> TaskWorld:
    """Two tasks, one worker, retries after one and two seconds."""
    return TaskWorld(
        seed=1,
        wishes=(PlannedTask(number=0, priority=60), PlannedTask(number=1)),
        workers=1,
        options=dict(plain_row()),
        flaws=tuple(Flaw(name=name, passes=True, dial=0) for name in flaws),
    )


@dataclass
class EventScript:
    """Events in order; each response arrives a hundredth of a second after its request."""

    seen: TaskObservations = field(default_factory=TaskObservations)

    def create(self, at: float, wish: int, task_id: str, **changes: Any) -> CreatedTask:
        """Create a task."""
        made = CreatedTask(
            wish, f"name-{wish}", f"kind/{wish}", at, at + TICK, 0, task_id, "text", 0, 0 if wish else 60
        )
        self.seen.created.append(replace(made, **changes))
        return self.seen.created[-1]

    def hold(self, at: float, task_id: str, lease: int, order_time: float, **changes: Any) -> HeldLease:
        """Give a task out."""
        number = 0 if task_id == FIRST else 1
        ahead = 0 if number else 60
        held = HeldLease(
            task_id=task_id,
            lease=lease,
            sent_at=at,
            received_at=at + TICK,
            lease_end=at + TICK / 2 + LEASE_SECONDS,
            order_time_ms=round(order_time * 1_000),
            crt_retry_num=0,
            stage="",
            text="text",
            log="",
            user_id=f"kind/{number}",
            priority=ahead,
        )
        self.seen.holdings.append(replace(held, **changes))
        self.seen.asked.append(HoldAttempt(at, at + TICK, 0, (task_id,)))
        return self.seen.holdings[-1]

    def say(self, at: float, held: HeldLease, status: int, **changes: Any) -> None:
        """Say what became of it."""
        said = SentResult(held.task_id, held.lease, status, at, at + TICK, 0)
        self.seen.sayings.append(replace(said, **changes))

    def end(self, task_id: str, status: int, **changes: Any) -> None:
        """Add the final state of a task."""
        number = 0 if task_id == FIRST else 1
        told = FinalTask(task_id, f"kind/{number}", status, 0 if number else 60, 0, "", "text", "")
        self.seen.ended.append(replace(told, **changes))

    def close(self) -> TaskObservations:
        """Count what is there."""
        by_status = [each.status for each in self.seen.ended]
        self.seen.counts = {
            "task_count": len(by_status),
            "success": by_status.count(SUCCESS),
            "failed": by_status.count(FAILED),
            "cancelled": by_status.count(CANCELLED),
        }
        return self.seen


def script_two_tasks() -> TaskObservations:
    """One task fails once and then goes well, the other goes well at once."""
    story = EventScript()
    story.create(10.0, 0, FIRST)
    story.create(10.0, 1, SECOND)
    first = story.hold(10.1, FIRST, 1, 10.005 - 60)
    second = story.hold(10.2, SECOND, 2, 10.005)
    story.say(10.3, first, PENDING, crt_retry_num=1, log=BROKEN)
    story.say(10.4, second, SUCCESS)
    again = story.hold(11.4, FIRST, 3, 11.305, crt_retry_num=1, log=BROKEN)
    story.say(11.5, again, SUCCESS)
    story.end(FIRST, SUCCESS, crt_retry_num=1, log=BROKEN)
    story.end(SECOND, SUCCESS)
    return story.close()


def judge(seen: TaskObservations, *flaws: str, fires: bool = True) -> Ending:
    """How it is judged."""
    seen.fired = frozenset(flaws if fires else ())
    return judge_world(make_world(*flaws), seen).ending
