"""Isolation, route by route: with everything that another project owns a stranger sees, changes and guesses nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

import asyncpg
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from yarl import URL

from api.app import ROUTE_GROUPS
from api.http.routes import Route, RouteAccess
from infra.database import Database
from infra.settings import Settings
from sims.receiver import running_receiver
from tests.support.api import ApiClient, running_api
from tests.support.estates import MARK, Builder, Estate
from tests.support.selecting import mark_long_except
from tests.support.tasks import SIGNED
from tests.support.waiting import eventually
from tests.support.worker import running_worker

# One installation is built for all, and every route is asked in twenty ways.
pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

ROUTES = [route for group in ROUTE_GROUPS for route in group]
LOCKED = [route for route in ROUTES if route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH}]
# To register a type is to ask for a name that must be one in the whole installation: the answer says that it is taken.
MAKES_A_TYPE = {"POST /v1/register_task_type", "POST /v1/register_task"}
# The report of a day needs a platform that answers, and here is none.
NEEDS_A_PLATFORM = "GET /v1/platforms/{platform}/reports/{day}"
# Rows that change without a request for them: keys note their use, lanes store their heads.
SHORTEST = 4
"""A shorter value is part of many sentences that do not refer to it."""
HOUR = 3_600.0
# What a caller does to a workflow; timers, steps and what a query makes a worker repeat are no caller's doing.
DEEDS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
}
VOLATILE = {"last_used_at", "updated_at", "read_at"}
UNMOVED = """
    SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name NOT LIKE 'limit_%'
        AND table_name <> 'worker_heartbeats'
"""


@dataclass(frozen=True)
class Ask:
    """One request of a route, and what it names."""

    route: Route
    path: str
    query: Mapping[str, Any]
    body: Any

    @property
    def sent(self) -> str:
        """Everything that is said in it."""
        return json.dumps([self.path, self.query, self.body], default=str)


@dataclass(frozen=True)
class Installation:
    """An API, the project that owns everything in it, and another project."""

    api_client: ApiClient
    database: Database
    engine: Client
    owner: Estate
    stranger: str
    key: str
    cookie: Mapping[str, str]


@pytest.fixture
async def installation(settings: Settings, database: Database) -> AsyncIterator[Installation]:
    """API, worker and receiver; one project owns something of every kind, the other nothing at all."""
    async with running_receiver() as receiver:
        address = receiver.base.removeprefix("http://")
        # A job's deadline follows from its id and is in answers afterwards: none may pass between two requests.
        quick = {"window_seconds": 1, "timeout_seconds": HOUR, "terminate_wait_seconds": 0.1, "kept_seconds": HOUR}
        settings = settings.model_copy(
            update={
                "guard": settings.guard.model_copy(update={"allow": [address]}),
                "transfers": settings.transfers.model_copy(update=quick),
                "orders": settings.orders.model_copy(update={"own_address": "http://127.0.0.1:8080"}),
            }
        )
        async with running_api(settings) as api_client, running_worker(settings) as running:
            mine = await api_client.make_project(MARK)
            owner = await Builder(api_client, running.services, receiver, *mine).build()
            stranger, key = await api_client.make_project("stranger")
            cookie = await api_client.ask("POST", "/v1/session", json={"api_key": key})
            sent = cookie.headers["Set-Cookie"].partition(";")[0]
            await eventually(lambda: is_quiet(api_client, database, owner))
            yield Installation(
                api_client,
                database,
                running.services.engine,
                owner,
                stranger,
                key,
                {"Cookie": sent, "Haulage-Console": "1"},
            )


async def is_quiet(api_client: ApiClient, database: Database, owner: Estate) -> bool:
    """Whether all work of the owner has come to an end, so that from now on only strangers change anything."""
    job = await api_client.ask("GET", f"/v1/transfers/jobs/{quote(owner.job_id)}", key=owner.key)
    purge = await api_client.as_admin("GET", f"/v1/addresses/logical-deletes/purges/{owner.purge_id}")
    async with database.connection() as connection:
        head = await connection.fetchrow("SELECT pending, running FROM task_heads")
    is_counted = head is not None and (head["pending"], head["running"]) == (1, 1)
    return is_counted and bool(job.body.get("finished_at")) and purge.body.get("state", "running") != "running"


def asks(route: Route, estate: Estate) -> list[Ask]:
    """Return requests of a route about an estate: the smallest, and one with every filter that names its resources."""
    path = estate.path(route)
    named = names(route, estate)
    needed = [name for name, each in (route.query.model_fields if route.query else {}).items() if each.is_required()]
    queries = [{name: named[name] for name in needed}]
    if named.keys() - set(needed):
        queries.append(named)
    body = bodies(estate).get(route.name, {}) if route.body else None
    return [Ask(route, path, query, body) for query in queries]


def names(route: Route, estate: Estate) -> dict[str, Any]:
    """What of an estate a query can name."""
    known = {
        "platform": estate.platform,
        "mark": estate.mark,
        "page": 0,
        "page_size": 10,
        "task_type": estate.task_type,
        "task_id": estate.queued_id if route.tag == "tasks" else estate.task_id,
        "name": estate.task_type,
        "prefix": estate.task_type,
        "order_id": estate.order_id,
        "search": estate.job_id,
        "target_agent_id": MARK,
        "project_id": estate.project_id,
        "address_id": estate.address_id,
    }
    return {name: known[name] for name in (route.query.model_fields if route.query else ()) if name in known}


def bodies(estate: Estate) -> dict[str, Any]:
    """Bodies of the routes that name resources in them; other routes refuse before they read a body, or name none."""
    new = {"task_type": estate.task_type}
    held = {"task_id": estate.held_id, "lease": estate.lease}
    export = {"data": [{"name": "x"}], "project_id": estate.project_id}
    file = {
        "biz_id": 3,
        "app_id": 7,
        "file_path": "/etc/other.conf",
        "file_name": "other.conf",
        "signature": "cd" * 32,
        "target_user": "root",
        "target_file_dir": "/data/other",
    }
    return {
        "POST /v1/downloads": export,
        "POST /v1/templates/preview": {"data": [{"name": "x"}]},
        "POST /v1/orders/marks": {"platform": estate.platform},
        "POST /v1/transfers": {**file, "target_agent_id": "a"},
        "POST /v1/transfers:batch": {**file, "targets": [{"target_agent_id": "b"}]},
        "POST /v1/transfers/jobs/{job_id}/retry": {},
        "POST /v1/create_task": {"task_data": new},
        "POST /v1/create_tasks": {"task_list": [new]},
        "POST /v1/hold_tasks": new,
        "POST /v1/hold_task": new,
        "POST /v1/register_task_type": {"task_type_data": new},
        "POST /v1/register_task": {"task_type_data": new},
        "POST /v1/pause_task_type": new | SIGNED,
        "POST /v1/resume_task_type": new | SIGNED,
        "POST /v1/remove_task_type": new | SIGNED,
        "POST /v1/set_task": {"task_data": {**held, "status": 3}},
        "POST /v1/set_tasks": {"task_list": [{**held, "status": 3}]},
        "POST /v1/heartbeat_tasks": {"task_list": [held]},
        "POST /v1/cancel_task": {"task_id": estate.queued_id},
        "POST /v1/cancel_tasks": {"task_ids": [estate.queued_id]},
        "POST /v1/put_back_tasks": {"task_list": [held]},
    }


@dataclass(frozen=True)
class RouteAnswer:
    """What an ask was answered."""

    status: int
    text: str

    def without(self, estate: Estate) -> str:
        """The answer without what the caller had said, and without what differs every time."""
        text = self.text
        for name, value in sorted(vars(estate).items(), key=lambda each: len(str(each[1])), reverse=True):
            if isinstance(value, str) and len(value) >= SHORTEST:
                text = text.replace(json.dumps(value)[1:-1], f"<{name}>").replace(value, f"<{name}>")
        return text

    @property
    def is_refusal(self) -> bool:
        """Whether it says no, in whichever form."""
        body = json.loads(self.text) if self.text.startswith("{") else {}
        return self.status >= 400 or ("msg" in body and body["code"] != 0)


async def send(installation: Installation, ask: Ask, headers: Mapping[str, str], **more: str) -> RouteAnswer:
    """Send it; of streams the first words."""
    url = URL(installation.api_client.address + ask.path, encoded=True).update_query({**ask.query, **more})
    sent = {} if ask.body is None else {"json": ask.body}
    async with installation.api_client.session.request(
        ask.route.method, url, headers={**headers, "X-Request-Id": "isolation"}, allow_redirects=False, **sent
    ) as answer:
        streams = answer.content_type == "text/event-stream"
        body = await (answer.content.readany() if streams else answer.read())
        return RouteAnswer(answer.status, body.decode(errors="replace"))


async def rows(database: Database) -> set[str]:
    """All that is written down."""
    async with database.connection() as connection:
        return {row for table in await tables(connection) for row in await dump(connection, table)}


async def tables(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """All tables but those that count by themselves."""
    return [row["table_name"] for row in await connection.fetch(UNMOVED)]


async def dump(connection: asyncpg.Connection[asyncpg.Record], table: str) -> list[str]:
    """A table's rows as text."""
    found = await connection.fetch(f'SELECT to_jsonb(t)::text AS row FROM "{table}" t')  # noqa: S608
    kept = [{name: value for name, value in json.loads(each["row"]).items() if name not in VOLATILE} for each in found]
    return [f"{table} {json.dumps(row, sort_keys=True)}" for row in kept]


async def histories(installation: Installation) -> dict[str, tuple[str, list[int]]]:
    """What others have done to the owner's workflows; what these do by their own clocks is nobody's doing."""
    owner = installation.owner
    lane = f"tasks/{owner.project_id}/{owner.task_type}/1"
    found = {}
    for workflow_id in (f"download:{owner.project_id}:{owner.task_id}", owner.job_id, lane):
        history = await installation.engine.get_workflow_handle(workflow_id).fetch_history()
        found[workflow_id] = (history.run_id, [event.event_id for event in history.events if event.event_type in DEEDS])
    return found


def check_unseen(ask: Ask, owner: Estate, answer: RouteAnswer) -> None:
    """Assert that an answer contains nothing of the owner's but what the caller sent."""
    said, text = unquote(ask.sent), answer.text
    own = sorted((value for value in vars(owner).values() if isinstance(value, str)), key=len, reverse=True)
    for value in own:
        if json.dumps(value)[1:-1] in said:
            text = text.replace(value, "")
    private = [owner.task_id, owner.delivery_id, owner.transfer_id, owner.queued_id, owner.held_id, owner.purge_id]
    assert [each for each in (MARK, owner.project_id, owner.key_id, *private) if each in text] == [], ask


def check_alike(installation: Installation, ask: Ask, seen: RouteAnswer, missed: RouteAnswer) -> None:
    """What is another's is answered as what is not there at all."""
    assert seen.status == missed.status, (ask, seen, missed)
    assert seen.is_refusal == missed.is_refusal, (ask, seen, missed)
    if seen.is_refusal:
        assert seen.without(installation.owner) == missed.without(installation.owner.made_up()), ask


async def walk(installation: Installation, routes: list[Route], headers: Mapping[str, str]) -> None:
    """Ask routes about what the owner has and about what does not exist; routes that only read come first."""
    before, begun = await rows(installation.database), await histories(installation)
    absent = installation.owner.made_up()
    for route in sorted(routes, key=lambda each: (each.name in MAKES_A_TYPE, each.method != "GET")):
        for real, unreal in zip(asks(route, installation.owner), asks(route, absent), strict=True):
            seen, missed = await send(installation, real, headers), await send(installation, unreal, headers)
            check_unseen(real, installation.owner, seen)
            check_alike(installation, real, seen, missed)
            refusal = HTTPStatus.FORBIDDEN if route.access is RouteAccess.ADMIN else HTTPStatus.NOT_FOUND
            assert not route.path_model or seen.status == refusal, (real, seen)
    assert before - await rows(installation.database) == set()
    assert await histories(installation) == begun


@pytest.mark.parametrize("by", mark_long_except(["cookie", "key"], ["key"]))
async def test_a_stranger_sees_changes_and_guesses_nothing(installation: Installation, by: str) -> None:
    """With the owner's real ids in every path, query and body."""
    await walk(
        installation, LOCKED, installation.cookie if by == "cookie" else {"Authorization": f"Bearer {installation.key}"}
    )


async def test_what_a_stranger_must_not_see_is_there(installation: Installation) -> None:
    """Every id is real: the owner, and the operator, are answered where a stranger is not."""
    admin = installation.api_client.settings.api.admin_key.get_secret_value()
    keys = {
        RouteAccess.ADMIN: admin,
        RouteAccess.OWNER: installation.owner.key,
        RouteAccess.PROJECT: installation.owner.key,
    }
    for route in LOCKED:
        if route.method != "GET" or route.name == NEEDS_A_PLATFORM:
            continue
        key = keys.get(route.access, installation.owner.key)
        for ask in asks(route, installation.owner):
            answer = await send(installation, ask, {"Authorization": f"Bearer {key}"})
            assert answer.status == HTTPStatus.UPGRADE_REQUIRED or not answer.is_refusal, (ask, answer)


@pytest.mark.long
async def test_the_admin_within_a_project_sees_what_the_project_sees(installation: Installation) -> None:
    """The header narrows the admin key down to one project, on every route that works on one."""
    admin = installation.api_client.settings.api.admin_key.get_secret_value()
    routes = [route for route in LOCKED if route.is_within_project]
    await walk(installation, routes, {"Authorization": f"Bearer {admin}", "Haulage-Project": installation.stranger})


async def test_naming_the_owner_s_project_opens_no_route(installation: Installation) -> None:
    """Neither in the header nor in the query, and nobody's project is answered alike."""
    before, begun = await rows(installation.database), await histories(installation)
    owner, absent = installation.owner, installation.owner.made_up()
    for route in LOCKED:
        for ask in asks(route, owner):
            for named in ("header", "query"):
                if named == "query" and route.method != "GET":
                    continue
                answers = [await name_project(installation, ask, named, each.project_id) for each in (owner, absent)]
                assert all(each.is_refusal for each in answers), (ask, answers)
                check_unseen(ask, owner, answers[0])
                assert answers[0].without(owner) == answers[1].without(absent), ask
    assert before - await rows(installation.database) == set()
    assert await histories(installation) == begun


async def name_project(installation: Installation, ask: Ask, where: str, project_id: str) -> RouteAnswer:
    """Send it for a project that is not the caller's."""
    if where == "header":
        return await send(installation, ask, {**installation.cookie, "Haulage-Project": project_id})
    return await send(installation, ask, installation.cookie, project=project_id)


def test_every_route_that_names_resources_in_its_body_is_tested_with_them() -> None:
    """A new route of a project with a body has to say here what it names."""
    nothing: dict[str, Any] = dict.fromkeys(Estate.__dataclass_fields__, "")
    named = bodies(Estate(**nothing))
    bodied = {route.name for route in LOCKED if route.body and route.is_within_project}
    assert bodied == named.keys()
