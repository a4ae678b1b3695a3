"""Playing: a world's callers ask through the API, and all that comes of it is gathered and judged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from activities.transfers.journal import LockedJournalEntry
from api.transfers import joins
from domain.transfers import joining
from infra.settings import Settings
from sims.gse.scenario import GseCall, GseScenario
from sims.gse.tasks import FileSpot, SimulatedTarget, SimulatedTask
from sims.gse.world import GseWorld as Gse
from tests.support.gse import Gse as GseParts
from tests.support.transfers import Transfers, running_transfers
from tests.worlds.transfers.gse import AGENT_STATES, GseOfWorlds, running_gse_of_worlds
from tests.worlds.transfers.judging import RETRIES, judge_world
from tests.worlds.transfers.naming import TargetGoal, TransferNames
from tests.worlds.transfers.repository import Repositories, WorldRepository, running_repositories
from tests.worlds.transfers.seen import FINAL, JobLine, OnDisk, SeenJob, SeenTarget, SentTask, TransferObservations
from tests.worlds.transfers.world import DISTINCT_WISHES_MAX, Cancellation, PlannedRequest, TransferWorld
from tests.worlds.verdict import Verdict

WINDOW_SECONDS = 2
DEADLINE_SECONDS = 15.0
SILENCE_SECONDS = 2.5
ANSWER_SECONDS = 6.0
BOUND_SECONDS = 180.0
"""Also on a busy machine; what never ends is ended here."""
LOOK_SECONDS = 0.4
ASK_AGAIN_MAX = 30
EARLY_SECONDS = 0.2
"""A cancellation is early if it was answered this many seconds before the window ended."""
LATER_SECONDS = 60.0
"""What is on its way in the end arrives within that, on the clock of hosts."""
PAGE = 3
SAME = ("status", "reason", "code", "message", "job_id", "target_agent_id", "target_container_id", "signature")


@dataclass
class JoinedTask:
    """A task that a caller was given."""

    task_id: str
    job_id: str
    goal: TargetGoal
    wish: int


@dataclass
class TransferWorldPlay:
    """One playing of a world."""

    names: TransferNames
    transfers: Transfers
    keys: Mapping[str, str]
    """Of projects."""
    gse: Gse
    rules: list[str]
    repository: WorldRepository
    reported: Collection[str]
    """The ids of GSE tasks that have reached the product, of all worlds."""
    joined: list[JoinedTask] = field(default_factory=list)
    cancelled: dict[tuple[str, str, TargetGoal | None], float] = field(default_factory=dict)
    """By job, project, and goal for a single task: when the cancellation was answered."""
    refusals: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[FileSpot] = field(default_factory=Counter)
    never_joined: int = 0

    async def run(self) -> Verdict:
        """Ask, cancel, wait for the ends, and judge."""
        await asyncio.gather(*(self._ask_for(number, wish) for number, wish in enumerate(self.names.world.wishes)))
        return judge_world(self.names, await self._see())

    async def _ask_for(self, number: int, wish: PlannedRequest) -> None:
        await asyncio.sleep(wish.delay_seconds)
        targets = [self.names.target(wish, host) for host in wish.hosts]
        goals = [self.names.goal(wish, host) for host in wish.hosts]
        body = self.names.request(wish)
        if wish.options["request"] == "batch":
            answer = await self._post(wish, "/v1/transfers:batch", body | {"targets": targets}, goals)
            tasks = [(task["task_id"], answer["job_id"]) for task in answer["tasks"]] if answer else []
        else:
            pairs = zip(targets, goals, strict=True)
            singles = [self._post(wish, "/v1/transfers", body | target, [goal]) for target, goal in pairs]
            tasks = [(each["task_id"], each["job_id"]) for each in await asyncio.gather(*singles) if each]
        self.never_joined += len(goals) - len(tasks)
        for (task_id, job_id), goal in zip(tasks, goals, strict=False):
            self.joined.append(JoinedTask(task_id, job_id, goal, number))
        await asyncio.gather(*(self._cancel(each, number) for each in self.names.world.cancels if each.wish == number))

    async def _post(
        self, wish: PlannedRequest, path: str, body: Mapping[str, Any], goals: Iterable[TargetGoal]
    ) -> dict[str, Any] | None:
        """Repeat a request until it is accepted, as callers do after a 503."""
        for attempt in range(ASK_AGAIN_MAX):
            reply = await self._ask(wish.options["project"], "POST", path, json=dict(body))
            if reply.status == 202:
                accepted: dict[str, Any] = reply.body
                return accepted
            if reply.status not in {429, 503}:
                self.refusals[f"{reply.code}: {reply.body}"] += 1
                return None
            if reply.status == 429 and attempt == 0:
                self.refusals[reply.code] += 1
            if reply.status == 503:
                self.unanswered.update({self.names.spot(goal) for goal in goals})
            await asyncio.sleep(float(reply.headers["Retry-After"]))
        return None

    async def _ask(self, project: str, method: str, path: str, **options: Any) -> Any:
        return await self.transfers.api_client.ask(method, path, key=self.keys[project], **options)

    async def _cancel(self, cancel: Cancellation, wish: int) -> None:
        await asyncio.sleep(cancel.delay_seconds)
        project = self.names.world.wishes[wish].options["project"]
        mine = [each for each in self.joined if each.wish == wish]
        mine = mine[:1] if cancel.host is None else [each for each in mine if each.goal.host == cancel.host][:1]
        for task in mine:
            path = f"jobs/{quote(task.job_id)}" if cancel.host is None else quote(task.task_id)
            reply = await self._ask(project, "POST", f"/v1/transfers/{path}/cancel")
            if reply.status == 202 and reply.body["status"] not in FINAL:
                self.cancelled[task.job_id, project, None if cancel.host is None else task.goal] = time.time()

    async def _see(self) -> TransferObservations:
        seen = TransferObservations(refusals=self.refusals, unanswered=self.unanswered, never_joined=self.never_joined)
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                seen.jobs = await asyncio.gather(*(self._read_job(*job) for job in sorted(self._jobs)))
        except TimeoutError:
            seen.late = f"not in {BOUND_SECONDS} s: {[await self._read_task(each) for each in self.joined]}"[:2_000]
        else:
            await self.gse.advance(LATER_SECONDS)
            seen.targets = await self._see_targets()
            seen.outcomes = {job_id: await self._read_outcome(job_id) for job_id in {job for job, _ in self._jobs}}
            seen.sends = self._list_sends()
        seen.fired = frozenset(self._list_fired())
        return seen

    @property
    def _jobs(self) -> set[tuple[str, str]]:
        return {(each.job_id, each.goal.project) for each in self.joined}

    async def _read_job(self, job_id: str, project: str) -> SeenJob:
        """Wait until a job is over, and read it page by page."""
        path = f"/v1/transfers/jobs/{quote(job_id)}"
        while True:
            page = (await self._ask(project, "GET", path, params={"limit": PAGE})).body
            if page.get("finished_at"):
                break
            await asyncio.sleep(LOOK_SECONDS)
        first, targets = page, list(page["targets"])
        while page["next_cursor"]:
            page = (await self._ask(project, "GET", path, params={"limit": PAGE, "cursor": page["next_cursor"]})).body
            targets += page["targets"]
        return SeenJob(
            job_id=job_id,
            project=project,
            status=first["status"],
            counts=first["counts"],
            targets=[_build_job_line(each) for each in targets],
            troubles=sum(each["count"] for each in first["failures_by_reason"]),
        )

    async def _see_targets(self) -> list[SeenTarget]:
        reported: dict[tuple[str, TargetGoal], list[dict[str, Any]]] = defaultdict(list)
        for task, answer in zip(self.joined, await self._read_tasks(), strict=True):
            reported[task.job_id, task.goal].append(answer)
        return [self._see_target(job_id, goal, answers) for (job_id, goal), answers in reported.items()]

    async def _read_tasks(self) -> list[dict[str, Any]]:
        return await asyncio.gather(*map(self._read_task, self.joined))

    async def _read_task(self, task: JoinedTask) -> dict[str, Any]:
        answer: dict[str, Any] = (
            await self._ask(task.goal.project, "GET", f"/v1/transfers/{quote(task.task_id)}")
        ).body
        return answer

    def _see_target(self, job_id: str, goal: TargetGoal, answers: list[dict[str, Any]]) -> SeenTarget:
        answer = answers[0]
        asked_at = [
            moment
            for (job, project, one), moment in self.cancelled.items()
            if (job, project) == (job_id, goal.project) and one in (None, goal)
        ]
        closes_at = (int(job_id.rpartition(":")[2]) + 1) * WINDOW_SECONDS
        return SeenTarget(
            job_id=job_id,
            goal=goal,
            status=answer["status"],
            reason=answer["reason"],
            code=answer["code"],
            message=answer["message"],
            disk=self._look_on_disk(goal),
            cancelled=bool(asked_at),
            cancelled_early=any(moment < closes_at - EARLY_SECONDS for moment in asked_at),
            tasks_differ=self._compare_tasks(job_id, goal, answers),
        )

    def _look_on_disk(self, goal: TargetGoal) -> OnDisk:
        assert self.gse.disks
        path = self.gse.disks.path(self.names.spot(goal))
        if not path.exists():
            return OnDisk.NOTHING
        return OnDisk.RIGHT if path.read_bytes() == self.names.content(goal.content) else OnDisk.OTHER

    def _compare_tasks(self, job_id: str, goal: TargetGoal, answers: Iterable[Mapping[str, Any]]) -> str:
        """Return the differences between the tasks of one target, and from what was requested."""
        truth = {
            "job_id": job_id,
            "target_agent_id": goal.agent_id,
            "target_container_id": goal.container_id,
            "signature": self.names.signature(goal.content),
        }
        for answer in answers:
            wrong = {name: answer[name] for name, value in truth.items() if answer[name] != value}
            if wrong or answer["cancelling"] or not answer["ended_at"]:
                return f"a task of {goal} tells {wrong or answer}"
        reported = {tuple(answer[name] for name in SAME) for answer in answers}
        return f"tasks of {goal} report {reported}" if len(reported) > 1 else ""

    async def _read_outcome(self, job_id: str) -> dict[str, int]:
        handle = self.transfers.worker.services.engine.get_workflow_handle(job_id)
        result = await handle.result()
        counts: dict[str, int] = result["ended"]["counts"]
        return counts

    def _list_sends(self) -> dict[FileSpot, list[SentTask]]:
        found: dict[FileSpot, list[SentTask]] = defaultdict(list)
        for task in [*self.gse.tasks.values(), *self.gse.forgotten]:
            for target in task.targets.values():
                found[target.spot].append(_send(task, target, is_known=task.id in self.reported))
        return {spot: sorted(sends, key=lambda each: each.began_at) for spot, sends in found.items()}

    def _list_fired(self) -> Iterable[str]:
        """List what went wrong; what only looks unusual did if it was looked at."""
        yield from {self.rules[rule] for rule, times in self.gse.fired.items() if times}
        yield from self.repository.fired
        world, tasks = self.names.world, [*self.gse.tasks.values(), *self.gse.forgotten]
        if any(task.polled_at for task in tasks):
            yield from (flaw.name for flaw in world.flaws if flaw.name in UNUSUAL)
        if self.gse.calls[GseCall.STATES]:
            yield from (flaw.name for flaw in world.flaws if flaw.name in AGENT_STATES)
        asked = Counter((each.job_id, each.goal) for each in self.joined)
        if world.has("asked_twice") and any(count > 1 for count in asked.values()):
            yield "asked_twice"
        contents = {(each.job_id, each.goal.host, each.goal.folder, each.goal.content) for each in self.joined}
        if world.has("two_contents") and len({each[:3] for each in contents}) < len(contents):
            yield "two_contents"
        if world.has("source_is_target") and any((task.source.agent, "") in task.targets for task in tasks):
            yield "source_is_target"
        if world.has("many_wishes") and len({each.job_id for each in self.joined}) > 1:
            yield "many_wishes"


UNUSUAL = frozenset(
    {
        *("empty_at_first", "records_shuffled", "records_without_type", "no_records_after_upload", "codes_as_texts"),
        *("records_of_strangers", "records_twice", "older_records_too", "success_below_100"),
    }
)


def _build_job_line(target: Mapping[str, Any]) -> JobLine:
    return JobLine(
        target["signature"],
        target["target_user"],
        target["target_file_dir"],
        target["target_agent_id"],
        target["target_container_id"],
        f"{target['status']}/{target['reason']}/{target['code']}",
    )


def _send(task: SimulatedTask, target: SimulatedTarget, *, is_known: bool) -> SentTask:
    """Return a send; one whose id did not reach the product, because the answer was cut or late, is over at once."""
    if not is_known:
        return SentTask(task.created_at, task.created_at, task.id)
    moments = [moment for moment in (task.gone_at, target.failed_at) if moment is not None]
    return SentTask(task.created_at, min(moments, default=None), task.id)


@dataclass
class TransferStage:
    """Where worlds are played: API, worker, and all their repositories, GSEs and hosts."""

    transfers: Transfers
    gse: GseOfWorlds
    repositories: Repositories
    keys: Mapping[str, str]
    reported: Collection[str]
    played: int = 0

    async def play(self, world: TransferWorld) -> Verdict:
        """Play a world, and say what to think of what came out."""
        self.played += 1
        names = TransferNames(world, self.played)
        gse, rules = self.gse.add(names)
        try:
            repository = self.repositories.add(names)
            return await TransferWorldPlay(
                names, self.transfers, self.keys, gse, rules, repository, self.reported
            ).run()
        finally:
            await self.gse.close(names.name)


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[TransferStage]:
    """API, worker and the other side, with times and bounds that are small in the same proportion."""
    folder = settings.data_dir / "hosts"
    async with running_repositories() as repositories, running_gse_of_worlds(folder) as gse:
        guard = settings.guard.model_copy(update={"allow": [repositories.base.removeprefix("http://")]})
        gse_settings = settings.gse.model_copy(update={"answer_timeout_seconds": ANSWER_SECONDS})
        settings = settings.model_copy(update={"guard": guard, "gse": gse_settings})
        changes: dict[str, Any] = {
            "window_seconds": WINDOW_SECONDS,
            "timeout_seconds": DEADLINE_SECONDS,
            "silence_seconds": SILENCE_SECONDS,
            "retries": RETRIES,
            "repository": repositories.template,
        }
        nothing = Gse(GseScenario())
        parts = GseParts(gse.base, nothing, nothing.disks)  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patch:
            for module in (joining, joins):
                patch.setattr(module, "SPECS_MAX", DISTINCT_WISHES_MAX)
            reported = _record_task_ids(patch)
            async with running_transfers(settings, gse=parts, **changes) as transfers:
                _, other = await transfers.api_client.make_project("other")
                yield TransferStage(transfers, gse, repositories, {"first": transfers.key, "second": other}, reported)


def _record_task_ids(patch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that fills with the ids of GSE tasks as they reach the product.

    The stand-in cannot know: what it wrote may have come after the product had stopped to wait for it.
    """
    reported: set[str] = set()
    note = LockedJournalEntry.write_task_id

    def note_and_record(entry: LockedJournalEntry, task_id: str) -> None:
        reported.add(task_id)
        note(entry, task_id)

    patch.setattr(LockedJournalEntry, "write_task_id", note_and_record)
    return reported
