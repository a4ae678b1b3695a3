"""The overview: health of the components, workload of each system, and what each caller may see."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest

from cli import doctor
from cli.doctor import CheckResult
from domain import secrets
from domain.tasks.names import build_type_id
from infra.database import Database
from infra.settings import Settings
from stores import projects, worker_heartbeats
from systems import SYSTEMS
from tests.support.api import ApiClient, running_api
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

NOW = datetime.now(UTC).replace(microsecond=0)
LONG_AGO = NOW - timedelta(hours=1)

_DOWNLOAD = """
    INSERT INTO downloads (task_id, project_id, file_name, type, state, created_at, started_at, finished_at, request,
        processings)
    VALUES ($1, $2, 'x', 'csv', $3, $4, $4, $5, '{}', 1)
"""
_JOB = """
    INSERT INTO transfer_jobs (job_id, closes_at, deadline_at, finished_at, expires_at)
    VALUES ($1, $2, $2, $3, now() + interval '1 hour') RETURNING id
"""
_SHARD = """
    INSERT INTO transfer_shards (job, number, project_id, signature, target_user, folder, file_name, sendings)
    VALUES ($1, $2, $3, 's', 'u', 'f', 'n', '[]')
"""
_TARGET = """
    INSERT INTO transfer_targets (job, key, shard, agent_id, container_id, state, message, sending, failures,
        failed_in, progress, speed)
    VALUES ($1, $2, $3, 'a', 'c', $4, '', 0, 0, 0, 0, 0)
"""
_SLICE = """
    INSERT INTO order_slices (platform, start_at, end_at, track, claimed_at, holder, attempts, failed_at, done_at)
    VALUES ($1, $2, $3, 'live', $4, $5, 0, $6, $7)
"""


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The whole API."""
    async with running_api(settings) as api_client:
        yield api_client


def find_workload(body: dict[str, Any], system: str) -> dict[str, Any]:
    """Return the workload of a system in an overview."""
    found: dict[str, Any] = next(each for each in body["systems"] if each["system"] == system)
    return found


def read_counts(body: dict[str, Any], system: str) -> tuple[int, int, int]:
    """Return the numbers of running, waiting and failed items of a system."""
    found = find_workload(body, system)
    return found["running"], found["waiting"], found["failed"]


async def read_when_all_serve(api_client: ApiClient, key: str) -> dict[str, Any]:
    """Return a project's overview; on a busy machine a component may once take longer than it is waited for."""
    body: dict[str, Any] = (await api_client.ask("GET", "/v1/overview", key=key)).body
    assert body["problem"] is None
    return body


async def lay_out(database: Database, project_id: str, number: int) -> None:
    """Something of everything for a project; the more the higher its number."""
    async with database.connection() as connection:
        for place in range(number):
            for state, end in (("running", None), ("pending", None), ("failed", NOW), ("succeeded", NOW)):
                await connection.execute(_DOWNLOAD, f"{state}{number}-{place}", project_id, state, LONG_AGO, end)
        # Failed before the time from which failures are counted.
        await connection.execute(_DOWNLOAD, f"old{number}", project_id, "failed", LONG_AGO, NOW - timedelta(days=2))
        await connection.execute(
            "INSERT INTO order_platforms (platform, project_id, kind, shop, base_url, created_at, revision, "
            "unserved_since) VALUES ($1, $2, 'k', 's', 'u', now(), 0, now())",
            f"shop-{number}",
            project_id,
        )
        ends = [(None, None, None), ("worker", None, None), (None, NOW, None), (None, None, NOW)]
        for place in range(number):
            for kind, (holder, failed_at, done_at) in enumerate(ends):
                start = LONG_AGO + timedelta(minutes=10 * place + kind)
                end = start + timedelta(minutes=1)
                await connection.execute(_SLICE, f"shop-{number}", start, end, LONG_AGO, holder, failed_at, done_at)
        await connection.execute(
            "UPDATE order_slices SET stale_told_at = now() WHERE platform = $1 AND holder IS NOT NULL", f"shop-{number}"
        )
        await connection.execute(
            "INSERT INTO task_types (type, project_id, name, schedule_limit, schedule_interval, max_retry_num, "
            "max_retry_interval, max_processing_time, paused, version, begin_pos, end_pos) "
            "VALUES ($1, $2, $3, 1, 1, 1, 1, 1, $4, 1, 1, 1)",
            build_type_id(project_id, f"type-{number}"),
            project_id,
            f"type-{number}",
            number == 2,
        )
        await connection.execute(
            "INSERT INTO task_heads (type, pos, number, next_order_time, due, pending, running, success, failed, held, "
            "retries, timeouts, is_full) VALUES ($1, 1, 1, $2, $3, $3, $4, 0, 0, 0, 0, 0, false)",
            build_type_id(project_id, f"type-{number}"),
            int(LONG_AGO.timestamp() * 1000),
            10 * number,
            number,
        )


async def lay_out_job(database: Database, project_ids: list[str], *, over: bool) -> None:
    """A job in which each project has a target in every state."""
    async with database.connection() as connection:
        job = await connection.fetchval(_JOB, f"job-{over}", LONG_AGO, NOW if over else None)
        for shard, project_id in enumerate(project_ids):
            await connection.execute(_SHARD, job, shard, project_id)
            states = ("Success", "Failed", "Timeout") if over else ("Pending", "Running", "Success", "Failed")
            for place, state in enumerate(states):
                await connection.execute(_TARGET, job, 10 * shard + place, shard, state)


async def test_a_project_sees_its_own_figures_and_the_admin_all(api_client: ApiClient, database: Database) -> None:
    """Each system counts running, waiting and failed items by project."""
    (one, key), (two, _) = await api_client.make_project("one"), await api_client.make_project("two")
    await lay_out(database, one, 1)
    await lay_out(database, two, 2)
    for over in (False, True):
        await lay_out_job(database, [one, two], over=over)
    own = (await api_client.ask("GET", "/v1/overview", key=key)).body
    every = (await api_client.as_admin("GET", "/v1/overview")).body
    within = (await api_client.as_admin("GET", "/v1/overview", headers={"Haulage-Project": two})).body
    for system, mine, others in (
        ("downloads", (1, 1, 1), (2, 2, 2)),
        # Failed: one in the job that goes on, two in the one that is over.
        ("transfers", (1, 1, 3), (1, 1, 3)),
        ("orders", (1, 1, 1), (2, 2, 2)),
        ("tasks", (1, 10, 0), (2, 20, 0)),
    ):
        assert read_counts(own, system) == mine, system
        assert read_counts(within, system) == others, system
        assert read_counts(every, system) == tuple(map(sum, zip(mine, others, strict=True))), system
    assert (own["project_id"], within["project_id"], every["project_id"]) == (one, two, None)
    assert find_workload(own, "downloads")["oldest_running_seconds"] >= 3_600
    orders = find_workload(own, "orders")
    # An hour lies between the two, however long ago this file was read.
    assert orders["oldest_failed_seconds"] < orders["oldest_running_seconds"] - 3_500
    assert find_workload(own, "orders")["failed_since"] is None


async def test_every_system_and_queue_has_gauges(api_client: ApiClient, database: Database) -> None:
    """One scheme for all systems: items by state, their ages, concerns; workers and waits of queues; components."""
    project_id, _ = await api_client.make_project()
    await lay_out(database, project_id, 1)

    async def gauges() -> dict[str, float]:
        page = (await api_client.ask("GET", "/metrics")).body
        return {name: float(value) for name, value in re.findall(r"^(haulage_\w+\{[^}]*\}) (\S+)$", page, re.MULTILINE)}

    async def are_there() -> bool:
        found = await gauges()
        assert found['haulage_component_up{component="database"}'] == 1
        assert 0 < found['haulage_component_seconds{component="engine"}'] < 60
        assert found['haulage_workload_items{state="running",system="downloads"}'] == 1
        assert found['haulage_workload_oldest_seconds{state="running",system="downloads"}'] >= 3_600
        for system in SYSTEMS:
            assert f'haulage_workload_items{{state="failed",system="{system}"}}' in found
            assert f'haulage_concerns{{kind="no_worker",system="{system}"}}' in found
            assert f'haulage_queue_oldest_seconds{{queue="{system}",system="{system}"}}' in found
        return True

    assert await eventually(are_there)


async def test_concerns_are_named(api_client: ApiClient, database: Database) -> None:
    """Queues and platforms without workers, slices that take long, paused types, overdue tasks."""
    (one, key), (two, _) = await api_client.make_project("one"), await api_client.make_project("two")
    await lay_out(database, one, 1)
    await lay_out(database, two, 2)

    def concerns(body: dict[str, Any], system: str) -> dict[str, int]:
        return {each["kind"]: each["count"] for each in find_workload(body, system)["concerns"]}

    own = (await api_client.ask("GET", "/v1/overview", key=key)).body
    every = (await api_client.as_admin("GET", "/v1/overview")).body
    assert concerns(own, "orders") == {"no_worker": 1, "unserved": 1, "stale": 1, "failed": 1}
    assert concerns(every, "orders") == {"no_worker": 1, "unserved": 2, "stale": 3, "failed": 3}
    assert concerns(own, "tasks") == {"no_worker": 1, "overdue": 10, "waiting": 10}
    # What is paused is not overdue.
    assert concerns(every, "tasks") == {"no_worker": 1, "overdue": 10, "paused": 1, "waiting": 30}
    reasons = {each["kind"]: each["largest_groups"] for each in find_workload(every, "tasks")["concerns"]}
    assert [bool(each["subject"] and each["cause"]) for each in reasons["overdue"]] == [True]
    assert "paused by an operator" in {each["cause"] for each in reasons["waiting"]}
    assert sum(each["count"] for each in reasons["waiting"]) == 30
    assert concerns(own, "downloads")["failed"] == 1
    parts = {each["kind"]: each["largest_groups"] for each in find_workload(every, "orders")["concerns"]}
    assert parts["stale"] == [
        {"count": 2, "subject": "shop-2", "cause": ""},
        {"count": 1, "subject": "shop-1", "cause": ""},
    ]
    assert parts["no_worker"] == [{"count": 1, "subject": "orders", "cause": ""}]


async def test_only_the_admin_sees_what_all_projects_share(settings: Settings) -> None:
    """Addresses, the engine's queues and the way to its own pages."""
    ui = settings.engine.model_copy(update={"ui_url": "http://temporal.example.com"})
    async with running_api(settings.model_copy(update={"engine": ui})) as api_client:
        project_id, key = await api_client.make_project()
        own = await eventually(partial(read_when_all_serve, api_client, key))
        every = (await api_client.as_admin("GET", "/v1/overview")).body
        within = (await api_client.as_admin("GET", "/v1/overview", headers={"Haulage-Project": project_id})).body
    # Addresses belong to no project, whichever the admin key names.
    narrowed = {each["system"] for each in within["systems"] if "HaulageProject" in each["engine_url"]}
    of_projects = [system for system in SYSTEMS if system != "addresses"]
    assert narrowed == set(of_projects)
    assert [each["system"] for each in own["systems"]] == of_projects
    assert [each["system"] for each in every["systems"]] == [*SYSTEMS]
    assert own["queues"] == []
    assert {each["engine_url"] for each in own["systems"]} == {None}
    assert all(each["engine_url"].startswith("http://temporal.example.com/namespaces/") for each in every["systems"])
    assert {each["name"]: each["ok"] for each in own["components"]} == {
        "database": True,
        "engine": True,
        "bucket": True,
    }


async def test_workers_are_seen_at_the_queues_that_they_poll(api_client: ApiClient) -> None:
    """And what waits at the others is counted there."""
    async with running_worker(api_client.settings, ["tasks"]):

        async def is_polled() -> bool:
            queues = (await api_client.as_admin("GET", "/v1/overview")).body["queues"]
            return {each["name"] for each in queues if each["workers"]} == {"tasks"}

        await eventually(is_polled)


async def test_a_worker_that_is_suspended_counts_no_more(
    api_client: ApiClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overview, metric and doctor see within a minute that it writes no heartbeat, although it has polled just now."""
    monkeypatch.setattr(worker_heartbeats, "INTERVAL_SECONDS", 3_600)  # it writes one at its start only
    async with running_worker(api_client.settings, ["tasks"]):

        async def check_workers() -> CheckResult:
            [found] = [each async for each in doctor.iterate_check_results(api_client.settings, ["workers"])]
            return found

        async def is_served() -> bool:
            return "answer at 1 of" in (await check_workers()).found

        await eventually(is_served)
        age = timedelta(seconds=worker_heartbeats.SILENT_AFTER_SECONDS + 1)
        await worker_heartbeats.write_heartbeat(database, "1@gone", ["tasks"])
        async with database.connection() as connection:
            set_age = "UPDATE worker_heartbeats SET seen_at = now() - $1::interval"
            await connection.execute(f"{set_age} WHERE identity = '1@gone'", age)
            aged_at = time.monotonic()
            checked = await check_workers()
            longest = age.total_seconds() + time.monotonic() - aged_at
            assert (checked.ok, checked.look) == (True, True)
            named = r"Others hang or were killed, and their queues have another: 1@gone \(silent for (\d+) s\)"
            silent = re.search(named, checked.found)
            assert silent, checked.found
            # The database looks at the clock some time after the row was written.
            assert age.total_seconds() <= int(silent[1]) <= round(longest)
            await worker_heartbeats.delete_heartbeat_and_day_old_ones(database, "1@gone")
            await connection.execute(set_age, age)
        checked = await check_workers()
        assert not checked.ok
        assert checked.found.startswith("Workers hang or were killed, and these queues have no other: tasks. The last")
        body = (await api_client.as_admin("GET", "/v1/overview")).body
        assert {each["name"]: each["workers"] for each in body["queues"]}["tasks"] == 0
        [concern] = [each for each in find_workload(body, "tasks")["concerns"] if each["kind"] == "no_worker"]
        assert concern["largest_groups"] == [{"count": 1, "subject": "tasks", "cause": ""}]
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM worker_heartbeats") == 0


async def test_a_download_that_no_worker_has_started_waits(api_client: ApiClient) -> None:
    """It is counted as soon as it is accepted."""
    _, key = await api_client.make_project()
    await api_client.ask("POST", "/v1/downloads", key=key, json={"source_url": "http://example.com/rows"})

    async def is_waiting() -> bool:
        return read_counts((await api_client.ask("GET", "/v1/overview", key=key)).body, "downloads") == (0, 1, 0)

    await eventually(is_waiting)


async def next_event(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next overview of a stream."""
    while True:
        line = await answer.content.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            overview: dict[str, Any] = json.loads(line[6:])
            return overview


def watching(api_client: ApiClient, key: str) -> Any:
    """A stream of overviews."""
    url = f"{api_client.address}/v1/overview/events"
    return api_client.session.get(url, headers={"Authorization": f"Bearer {key}"})


async def test_a_stream_sends_snapshots_until_its_key_is_revoked(api_client: ApiClient, database: Database) -> None:
    """At once and then every two seconds, what is new included; and never again once the key opens nothing."""
    project_id, key = await api_client.make_project()
    parsed = secrets.parse_api_key(key)
    assert parsed is not None
    async with watching(api_client, key) as answer:
        assert read_counts(await next_event(answer), "downloads") == (0, 0, 0)
        await lay_out(database, project_id, 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while read_counts(await next_event(answer), "downloads") != (1, 1, 1):
                pass
        await api_client.as_admin("DELETE", f"/v1/projects/{project_id}/keys/{parsed.key_id}")
        await lay_out(database, project_id, 2)
        while line := await answer.content.readline():
            # One more may have been on its way; what came after the key's end is in none.
            assert not line.startswith(b"data: ") or read_counts(json.loads(line[6:]), "downloads") == (1, 1, 1)


async def test_a_stream_goes_on_while_the_database_is_away(
    api_client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so instead of figures, although the key cannot be read meanwhile; afterwards it shows figures again."""
    _, key = await api_client.make_project()

    async def refuse(*_arguments: object) -> None:
        raise ConnectionError

    async with watching(api_client, key) as answer, asyncio.timeout(PATIENCE_SECONDS):
        while (await next_event(answer))["problem"] is not None:
            pass
        with monkeypatch.context() as patch:
            patch.setattr(Database, "check_health", refuse)
            patch.setattr(projects, "find_key_credential", refuse)
            while (body := await next_event(answer))["problem"] is None:
                pass
            assert body["problem"].startswith("PostgreSQL does not serve since ")
            assert body["systems"] == []
        while (body := await next_event(answer))["problem"] is not None:
            pass
        assert read_counts(body, "downloads") == (0, 0, 0)


async def test_a_project_holds_so_many_streams_and_no_more(settings: Settings) -> None:
    """A further stream is refused with a time to retry, until another one closes."""
    async with running_api(settings, streams_per_project=1) as api_client:
        _, key = await api_client.make_project()
        async with watching(api_client, key) as first:
            await next_event(first)
            async with watching(api_client, key) as second:
                assert second.status == 429

        async def is_accepted() -> bool:
            async with watching(api_client, key) as third:
                return bool(third.status == 200)

        await eventually(is_accepted)


async def test_streams_end_when_the_server_stops(settings: Settings) -> None:
    """It does not wait for streams."""
    async with aiohttp.ClientSession() as session:
        async with running_api(settings) as api_client:
            _, key = await api_client.make_project()
            url = f"{api_client.address}/v1/overview/events"
            answer = await session.get(url, headers={"Authorization": f"Bearer {key}"})
            await next_event(answer)
        while await answer.content.readline():
            pass
        assert answer.content.at_eof()
