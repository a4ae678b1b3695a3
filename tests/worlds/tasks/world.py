"""A world of tasks: a type, who creates what, how workers behave, and what goes wrong; all from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict

from domain.tasks.messages import TaskTypeRules
from tests.worlds import dice
from tests.worlds.flaws import Flaw, draw_flaws
from tests.worlds.tasks.flaws import KINDS, OVERDUE, TaskFlawGroup
from tests.worlds.tasks.options import pairwise_rows, plain_row

LANE_TASKS = 8
"""Tasks that a lane takes in worlds; in the product it is thousands."""
BURST = 40
LEASE_SECONDS = 2
FIXED_PAUSE = 1
LONGEST_PAUSE = 2
DELAYED_PAUSE = 4
LAST_STAGE = "publish"
TEXTS = {"short": "cats.mp4", "empty": "", "long": "x" * 700, "chinese": "猫的视频 🐈"}
ODD_TEXTS = ("\x01\x1b", '{"a": "\\u0000"}', "x" * 16_384, "\r\n\t", "\u2028", "'; DROP TABLE tasks; --")


class TaskFate(StrEnum):
    """What becomes of an attempt."""

    GOES_WELL = "goes well"
    FAILS = "fails"
    FAILS_FOR_GOOD = "fails for good"
    IS_KEPT = "is kept"  # status 2, then it goes well
    IS_LATE = "is late"  # it goes well after its lease
    DIES = "dies"  # never reported
    BEATS_LATE = "beats late"  # a beat, then silence beyond the lease, then a beat
    ENDS_WITH_LEASE = "ends with its lease"
    CLOCK_AHEAD = "clock ahead"  # its worker takes the lease for over at once
    CLOCK_BEHIND = "clock behind"  # its worker never thinks that the lease ends


_OF_WORKERS = {
    "slow_worker": TaskFate.IS_LATE,
    "worker_dies": TaskFate.DIES,
    "workers_die_always": TaskFate.DIES,
    "beats_late": TaskFate.BEATS_LATE,
    "ends_with_its_lease": TaskFate.ENDS_WITH_LEASE,
    "clock_ahead": TaskFate.CLOCK_AHEAD,
    "clock_behind": TaskFate.CLOCK_BEHIND,
}


class PlannedTask(BaseModel):
    """One task that a caller wants done."""

    model_config = ConfigDict(frozen=True)

    number: int
    priority: int = 0
    delay_seconds: float = 0.0


class TaskWorld(BaseModel):
    """All that decides what comes out."""

    model_config = ConfigDict(frozen=True)

    seed: int
    wishes: tuple[PlannedTask, ...]
    workers: int
    options: dict[str, str]
    flaws: tuple[Flaw, ...] = ()

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""
        return [flaw.name for flaw in self.flaws]

    @property
    def choices(self) -> dict[str, str]:
        """Its options."""
        return self.options

    def flaw(self, *names: str) -> Flaw | None:
        """Return the flaw with one of these names, if the world has it."""
        return next((flaw for flaw in self.flaws if flaw.name in names), None)

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return self.flaw(*names) is not None

    def group(self, group: TaskFlawGroup) -> Flaw | None:
        """Return the flaw of a group, if the world has one."""
        return next((flaw for flaw in self.flaws if KINDS[flaw.name].group is group), None)

    def is_struck(self, flaw: str, number: int) -> bool:
        """Whether a flaw hits a task: at least the first."""
        return self.has(flaw) and (number == 0 or dice.share(self.seed, flaw, number) < 0.4)

    @property
    def rules(self) -> TaskTypeRules:
        """The type at first."""
        pauses = {"doubling": LONGEST_PAUSE, "fixed": -FIXED_PAUSE, "none": 0, "doubling from 2": LONGEST_PAUSE + 1}
        return TaskTypeRules(
            schedule_limit=int(self.options["schedule_limit"]),
            max_retry_num=int(self.options["retries"]),
            max_retry_interval=-DELAYED_PAUSE if self.has("delayed_retry_first") else pauses[self.options["pauses"]],
            max_processing_time=LEASE_SECONDS,
            retry_interval=2 if self.options["pauses"] == "doubling from 2" else 1,
            lease_required=self.options["lease"] == "demanded",
        )

    @property
    def later_rules(self) -> TaskTypeRules:
        """The type after it was changed; the same where it is not."""
        if not self.has("config_changed"):
            return self.rules
        retries = (int(self.options["retries"]) + 1) % 3
        changed = {"max_retry_num": retries, "max_retry_interval": 1, "retry_interval": 1}
        return replace(self.rules, schedule_limit=3, max_processing_time=3, **changed)

    def text(self, number: int) -> str:
        """Return the content of a task."""
        if self.is_struck("odd_texts", number):
            return ODD_TEXTS[(self.seed + number) % len(ODD_TEXTS)]
        return TEXTS[self.options["text"]]

    def start_seconds(self, number: int) -> float | None:
        """Return after how many seconds a task may begin; None where nothing is said of that."""
        if not self.is_struck("starts_later", number):
            return None
        return dice.pick((LEASE_SECONDS + 1.5, 1.2, 0.3, -60.0), self.seed, "start", number)

    def fate(self, number: int, attempt: int) -> TaskFate:
        """Return what becomes of an attempt at a task; they count from 0."""
        for name, fate in _OF_WORKERS.items():
            if self.is_struck(name, number) and (attempt == 0 or name == "workers_die_always"):
                return fate
        if self.is_struck("fails_to_the_end", number):
            return TaskFate.FAILS
        if self.is_struck("fails_often", number) and attempt < 2:
            return TaskFate.FAILS
        if self.is_struck("delayed_retry_first", number) and attempt == 0:
            return TaskFate.FAILS
        share = dice.share(self.seed, "fate", number, attempt)
        if share < 0.02:
            return TaskFate.FAILS_FOR_GOOD
        return TaskFate.FAILS if share < 0.12 else TaskFate.IS_KEPT if share < 0.2 else TaskFate.GOES_WELL


def draw_world(seed: int, family: Iterable[str] | None = None) -> TaskWorld:
    """Draw the world of a seed.

    Args:
        seed: The same makes the same world.
        family: Flaws of which it has one at least; by default it may have any, or none.
    """
    flaws = draw_flaws(seed, KINDS, list(TaskFlawGroup), family)
    names = {flaw.name for flaw in flaws}
    rows = pairwise_rows()
    options = dict(rows[seed % len(rows)])
    if names & {"create_lost", "create_differs", "daisy_chain"}:
        options["name"] = "own"
    if "create_lost_without_name" in names:
        options["name"] = "none"
    if names & {"fails_often", "delayed_retry_first"} and options["retries"] == "0":
        options["retries"] = "2"
    return TaskWorld(
        seed=seed, wishes=_draw_wishes(seed, names), workers=dice.pick((1, 2, 3), seed, "workers"), options=options,
        flaws=flaws,
    )  # fmt: skip


def _draw_wishes(seed: int, flaws: set[str]) -> tuple[PlannedTask, ...]:
    count = dice.pick((1, 2, 3, 5, LANE_TASKS - 1, LANE_TASKS, LANE_TASKS + 1, 12, 17), seed, "wishes")
    count = BURST if "burst" in flaws else count
    count = max(count, 6) if flaws & {"steady_priority", "delayed_retry_first"} else count
    count = min(count, 5) if flaws & OVERDUE and "burst" not in flaws else count
    wishes = []
    for number in range(count):
        priority = dice.pick((0, 0, 1, 60, 3_600), seed, "priority", number)
        delay = 0.0 if "burst" in flaws else dice.pick((0.0, 0.0, 0.02, 0.3, 1.2), seed, "delay", number)
        if "delayed_retry_first" in flaws and number == 0:
            priority, delay = 3_600, 0.0
        if "steady_priority" in flaws:
            priority, delay = (60, 0.15 * number) if number % 3 else (0, 0.0)
        wishes.append(PlannedTask(number=number, priority=priority, delay_seconds=delay))
    return tuple(wishes)


def list_smaller(world: TaskWorld) -> list[TaskWorld]:
    """List worlds that are a step smaller: a flaw, a worker, half of the tasks or one less, a plainer option."""
    flaws = [
        world.model_copy(update={"flaws": world.flaws[:at] + world.flaws[at + 1 :]}) for at in range(len(world.flaws))
    ]
    count = len(world.wishes)
    fewer = [
        world.model_copy(update={"wishes": world.wishes[:kept]})
        for kept in dict.fromkeys((count // 2, count - 1))
        if kept
    ]
    workers = [world.model_copy(update={"workers": world.workers - 1})] if world.workers > 1 else []
    plainer = [
        world.model_copy(update={"options": {**world.options, name: value}})
        for name, value in plain_row().items()
        if world.options[name] != value
    ]
    return [*flaws, *fewer, *workers, *plainer]
