"""Each field of a request of tasks has an effect: two of its values lead to different outcomes.

A new field needs a case: a field without one fails here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

import api.tasks
from api.http.models import Request
from api.tasks import requests
from infra.settings import Settings
from tests.support.tasks import PENDING, RUNNING, SUCCESS, Tasks, running_tasks
from tests.worlds.tasks.cases import CASES, NAMES, NEXT, OTHER, TOMORROW, WRAPPERS, TaskOptionCase

LANE_TASKS = 2

Json = dict[str, Any]


@dataclass
class TaskOptions:
    """Tasks, and a pair of types for each request, so that many run side by side."""

    tasks: Tasks
    numbers: count[int] = field(default_factory=count)

    async def prepare(self, changes: Json, **config: Any) -> TypePair:
        """Register a type, and another one where a request is about that."""
        number = next(self.numbers)
        pair = TypePair(self.tasks, f"o{number}", f"o{number}-other")
        for name in (pair.type, pair.other) if OTHER in changes.values() else (pair.type,):
            await pair.post("register_task_type", task_type_data={"task_type": name, **config})
        return pair


@dataclass
class TypePair:
    """A type that a request is about, and another one."""

    tasks: Tasks
    type: str
    other: str

    async def post(self, route: str, query: Mapping[str, Any] | None = None, **body: Any) -> Json:
        """Send a request; placeholders are replaced by the two types."""
        sent = {name: self.name(name, value) for name, value in body.items()}
        reply = await self.tasks.api_client.ask(
            "POST", f"/v1/{route}", key=self.tasks.key, json=sent, params=dict(query or {})
        )
        answer: Json = reply.body
        return answer

    async def get(self, route: str, **query: Any) -> Json:
        """Ask."""
        named = {name: self.name(name, value) for name, value in query.items()}
        sent = {name: str(value) for name, value in named.items() if value is not None}
        return await self.tasks.get(route, **sent)

    def name(self, field_: str, value: Any) -> Any:
        """Return the type of a placeholder, or the value itself."""
        if field_ != "task_type":
            return value
        return {None: self.type, OTHER: self.other}.get(value, value)

    async def create(self, **changes: Any) -> Json:
        """Create a task, of the first type unless another is said."""
        new = {"task_type": self.type} | {name: self.name(name, value) for name, value in changes.items()}
        if new.get("start_time") == TOMORROW:
            new["start_time"] = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        return await self.post("create_task", task_data=new)

    async def hold(self, **changes: Any) -> list[Json]:
        """Hold tasks of the first type."""
        held: list[Json] = (await self.post("hold_tasks", **{"task_type": None, **changes}))["task_list"]
        return held

    def plain(self, thing: Any) -> str:
        """Return a response without what differs each time."""
        return str(thing).replace(self.other, OTHER).replace(self.type, "type")


async def create(options: TaskOptions, changes: Json) -> Any:
    """Return a task, and whether creating it again returns the same one."""
    pair = await options.prepare(changes)
    first, again = await pair.create(**changes), await pair.create(**changes)
    task = (await pair.get("get_task", task_id=first["task_id"]))["task_data"]
    ahead = round(again["task_id"] == first["task_id"])
    reported = [task[name] for name in ("task_type", "user_id", "task_content", "task_priority", "stage")]
    return pair.plain([reported, ahead, len(await pair.hold())])


async def configure(options: TaskOptions, changes: Json) -> Any:
    """What a type does: its listing, how much a hold gives, for how long, and what becomes of a failure."""
    pair = await options.prepare(changes, schedule_limit=3, max_retry_interval=-60)
    sent = {"task_type": None, **changes}
    await pair.post("register_task_type", task_type_data={name: pair.name(name, each) for name, each in sent.items()})
    for _ in range(3):
        await pair.create()
    held = await pair.hold()
    now = (await pair.get("get_task", task_id=held[0]["task_id"]))["task_data"]
    lease = round((held[0]["lease_end"] - held[0]["order_time"]) / 30)
    unleased = await pair.post("set_task", task_data={"task_id": held[-1]["task_id"], "status": RUNNING})
    said = {"task_id": held[0]["task_id"], "lease": held[0]["lease"], "status": PENDING, "crt_retry_num": 1}
    await pair.post("set_task", task_data=said)
    after = (await pair.get("get_task", task_id=held[0]["task_id"]))["task_data"]
    types = (await pair.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
    listed = sorted(
        (each["task_type"], each["schedule_interval"], each["max_retry_num"])
        for each in types
        if each["task_type"] in (pair.type, pair.other)
    )
    if pair.name("task_type", sent["task_type"]) == pair.other:
        listed.append(("asked for the other", 0.0, 0))
    paused = round((after["order_time"] - now["order_time"]) / 60)
    return pair.plain([listed, len(held), lease, after["status"], paused, unleased["code"]])


async def hold(options: TaskOptions, changes: Json, *, in_query: bool = False) -> Any:
    """How many tasks a hold gives, two of which are there, or come while it waits."""
    pair = await options.prepare(changes)
    asked = {"task_type": None, **changes}
    later = "wait" in changes
    if not later:
        await pair.create()
        await pair.create()
    query = {name: str(pair.name(name, value)) for name, value in asked.items()} if in_query else None
    holding = asyncio.create_task(pair.post("hold_tasks", query, **({} if in_query else asked)))
    if later:
        await asyncio.wait([holding], timeout=0.3 if changes["wait"] else None)
        await pair.create()
    answer = await holding
    return len(answer.get("task_list", [])), answer["code"]


async def hold_by_query(options: TaskOptions, changes: Json) -> Any:
    """The same, all of it in the query."""
    return await hold(options, changes, in_query=True)


async def _two_held(options: TaskOptions) -> tuple[TypePair, list[Json]]:
    pair = await options.prepare({}, max_processing_time=600)
    for name in ("first", "second"):
        await pair.create(task_content=name)
    held = await pair.hold()
    return pair, sorted(held, key=lambda task: task["task_content"])


def _about(held: list[Json], changes: Json) -> Json:
    """Put in the first task, or the second, and the first one's lease."""
    first, second = held
    said = {"task_id": first["task_id"], "lease": first["lease"], **changes}
    if changes.get("task_id", OTHER) is None or "task_id" not in changes:
        said["task_id"] = first["task_id"]
    else:
        said |= {"task_id": second["task_id"], "lease": second["lease"]}
    return said | {"lease": said["lease"] or first["lease"]}


async def _read_shown_fields(pair: TypePair, held: list[Json]) -> list[Any]:
    tasks = [(await pair.get("get_task", task_id=each["task_id"]))["task_data"] for each in held]
    names = ("status", "crt_retry_num", "stage", "task_content", "schedule_log")
    return [[task[name] for name in names] for task in tasks]


async def say(options: TaskOptions, changes: Json) -> Any:
    """What two tasks are after a word about one of them."""
    pair, held = await _two_held(options)
    said = {"status": SUCCESS, **_about(held, changes)}
    answer = await pair.post("set_task", task_data={name: each for name, each in said.items() if each is not None})
    return answer["code"], await _read_shown_fields(pair, held)


async def beat(options: TaskOptions, changes: Json) -> Any:
    """Which of two leases begins anew."""
    pair, held = await _two_held(options)
    answer = await pair.post("heartbeat_tasks", task_list=[_about(held, changes)])
    tasks = [(await pair.get("get_task", task_id=each["task_id"]))["task_data"] for each in held]
    grown = [task["lease_end"] > each["lease_end"] for task, each in zip(tasks, held, strict=True)]
    return answer["code"], grown


async def put_back(options: TaskOptions, changes: Json) -> Any:
    """Which of two tasks waits again."""
    pair, held = await _two_held(options)
    answer = await pair.post("put_back_tasks", task_list=[_about(held, changes)])
    return answer["code"], [each[0] for each in await _read_shown_fields(pair, held)]


async def _prepare_listed_tasks(options: TaskOptions, changes: Json) -> TypePair:
    """Tasks over two lanes, of two stages and users, one of them done and archived; and one of the other type."""
    pair = await options.prepare(changes)
    await pair.create(task_content="done")
    [done] = await pair.hold()
    await pair.post("set_task", task_data={"task_id": done["task_id"], "lease": done["lease"], "status": SUCCESS})
    for number, (stage, user_id) in enumerate((("", "ann"), ("cut", "bob"), ("cut", "bob"))):
        await pair.create(task_content=f"task {number}", task_stage=stage, user_id=user_id)
    if OTHER in changes.values():
        await pair.create(task_type=OTHER, task_content="of the other type")
    return pair


async def _page(pair: TypePair, route: str, name: str, query: Json) -> Any:
    asked = dict(query)
    if asked.get("cursor") == NEXT:
        asked["cursor"] = (await pair.get(route, **{**asked, "cursor": None}))["next_cursor"]
    return [
        {key: each.get(key) for key in ("task_content", "task_type", "pos", "lane")}
        for each in (await pair.get(route, **asked))[name]
    ]


async def list_tasks(options: TaskOptions, changes: Json) -> Any:
    """Which tasks are listed."""
    pair = await _prepare_listed_tasks(options, changes)
    return pair.plain(await _page(pair, "get_task_list", "task_list", {"task_type": None, **changes}))


async def browse(options: TaskOptions, changes: Json) -> Any:
    """Which tasks are on a page."""
    pair = await _prepare_listed_tasks(options, changes)
    return pair.plain(await _page(pair, "browse_tasks", "task_list", {"task_type": None, **changes}))


async def browse_types(options: TaskOptions, changes: Json) -> Any:
    """Which types are on a page."""
    pair = await options.prepare({})
    for number in range(3):
        await pair.post("register_task_type", task_type_data={"task_type": f"listed-{number}"})
    return await _page(pair, "get_task_figures", "type_list", {"prefix": "listed-", **changes})


async def browse_lanes(options: TaskOptions, changes: Json) -> Any:
    """Which lanes are on a page."""
    pair = await _prepare_listed_tasks(options, changes)
    return pair.plain(await _page(pair, "get_task_lanes", "lane_list", {"task_type": None, **changes}))


async def steer(options: TaskOptions, changes: Json) -> Any:
    """Which type a pause leaves without tasks to hold, and what the audit log has of the pause."""
    pair = await options.prepare(changes)
    await pair.create()
    answer = await pair.post("pause_task_type", **{"task_type": None, "who": "ann", "reason": "a test", **changes})
    log = {"action": "POST /v1/pause_task_type", "limit": "1"}
    [entry] = (await options.tasks.api_client.as_admin("GET", "/v1/audit", params=log)).body["items"]
    return answer["code"], len(await pair.hold()), entry["who"], entry["reason"]


ASKS: Mapping[type[Request], Callable[[TaskOptions, Json], Awaitable[Any]]] = {
    requests.NewTask: create,
    requests.TaskTypeConfiguration: configure,
    requests.HoldTasksRequest: hold,
    requests.HoldTasksQuery: hold_by_query,
    requests.TaskResult: say,
    requests.TaskLease: beat,
    requests.TaskToPutBack: put_back,
    requests.ListTasksQuery: list_tasks,
    requests.BrowseTasksQuery: browse,
    requests.TaskTypesPageQuery: browse_types,
    requests.TaskLanesQuery: browse_lanes,
    requests.TaskTypeActionRequest: steer,
}


@pytest.fixture
async def options(settings: Settings) -> AsyncIterator[TaskOptions]:
    """API and worker; lanes take two tasks."""
    async with running_tasks(settings, lane_max_tasks=LANE_TASKS) as tasks:
        yield TaskOptions(tasks)


@pytest.mark.parametrize(("model", "cases", "ignored"), CASES, ids=[model.__name__ for model, *_ in CASES])
def test_every_field_has_a_case(
    model: type[Request], cases: Mapping[str, TaskOptionCase], ignored: tuple[str, ...]
) -> None:
    """A field without a case may have no effect."""
    assert set(model.model_fields) == {*cases, *ignored}


def test_every_request_is_here() -> None:
    """One that is added to the routes of tasks has its cases, or only holds or names what others say."""
    modules = [
        importlib.import_module(f"{api.tasks.__name__}.{each.name}")
        for each in pkgutil.iter_modules(api.tasks.__path__)
    ]
    own = {
        model
        for module in modules
        for _, model in inspect.getmembers(module, inspect.isclass)
        if issubclass(model, Request) and model.__module__ == module.__name__
    }
    assert own == {model for model, *_ in CASES} | set(WRAPPERS) | set(NAMES)
    assert {model: set(model.model_fields) for model in own & {*WRAPPERS, *NAMES}} == {**WRAPPERS, **NAMES}


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_makes_a_difference(options: TaskOptions) -> None:
    """With the other value of a field a request has another outcome; the same request twice has one, for comparison."""
    unheeded = await asyncio.gather(*(_list_unheeded(options, model, cases) for model, cases, _ in CASES))
    assert [each for found in unheeded for each in found] == []


async def _list_unheeded(options: TaskOptions, model: type[Request], cases: Mapping[str, TaskOptionCase]) -> list[str]:
    ask = ASKS[model]
    assert await ask(options, {}) == await ask(options, {}), model
    unheeded = []
    for name, case in cases.items():
        one, other = [await ask(options, {**case.beside, name: value}) for value in (case.one, case.other)]
        unheeded += [f"{model.__name__}.{name}"] if one == other else []
    return unheeded
