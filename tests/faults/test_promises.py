"""Promises about all processes at work: memory stays flat, and secrets stay secret."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

from dev.local import list_api_names, list_worker_names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.objects import ObjectStore
from sims import rows as sample
from sims.oss import server as oss
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores import sealed
from tests.support import secret_search
from tests.support.address_log import AddressLog
from tests.support.caller import Caller, running_caller
from tests.support.deployment import PUSH_SECRET, Deployment
from tests.support.downloads import expected_rows, parse_csv
from tests.support.memory import watching
from tests.support.order_fleet import SPAN_SECONDS, Fleet
from tests.support.tasks import SUCCESS
from tests.support.transfers import CONTENT, sha256
from tests.support.waiting import eventually

MEMORY_MAX_BYTES = 400 * 1024 * 1024
ROWS, SEED = 1_000_000, 6
UPRN = 77_000_001
"""No other test has it."""
SYSTEMS = {
    "downloads": {"histories", "tables", "answers"},
    "transfers": {"histories", "tables", "answers"},
    "orders": {"histories", "tables", "answers"},
    "addresses": {"tables", "answers", "work"},
    "tasks": {"histories", "tables", "answers"},
}
"""Of each system, the places where what is no secret is seen in any case; cycles of addresses know only numbers."""
ON_DISK = {"engine", "database", "store", "work"}
"""Folders in whose files some of it is seen; which system's is a matter of how their pages fall."""
COMPARED_EVERY = 97
"""Ids are compared of all rows, all cells of each such row: the test itself must not take longer than the export."""


@pytest.mark.long
async def test_memory_stays_flat_over_a_million_rows(deployment: Deployment) -> None:
    """An export of 1,000,000 rows keeps every process of Haulage under 400 MB, and is right."""
    async with running_caller(deployment) as caller:
        async with watching(deployment) as memory:
            url = f"{deployment.source}/rows?rows={ROWS}&seed={SEED}"
            status = await caller.wait_for_end(await caller.start(url, page_size=1_000))
        assert (status["state"], status["rows"]) == ("succeeded", ROWS)
        data = await caller.file(status["task_id"])

    assert memory.peaks.keys() == {*list_api_names(), *list_worker_names()}
    assert memory.samples >= 5
    assert max(memory.peaks.values()) < MEMORY_MAX_BYTES, memory.peaks
    ids = csv.read_csv(
        pa.py_buffer(data),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(include_columns=["id"]),
    )["id"]
    first = sample.row(SEED, 0)["id"]
    assert ids.to_pylist() == list(range(first, first + ROWS))
    rows = parse_csv(data)
    assert len(rows) == ROWS + 1
    assert rows[1::COMPARED_EVERY] == expected_rows(SEED, range(0, ROWS, COMPARED_EVERY))[1:]


async def test_secrets_are_nowhere_in_clear(deployment: Deployment) -> None:
    """What a caller or an operator keeps secret, in any system, is in no history, log, table or file.

    Nor is it in a page of figures, in an answer, or in any other byte on the disk.
    """
    since = datetime.now(UTC)
    controls = {system: f"control-{system}-{secrets.token_hex(6)}" for system in SYSTEMS}
    planted = {
        "admin key": deployment.installation.admin_key,
        "GSE secret": deployment.settings.gse.app_secret.get_secret_value(),
        "token of modules": oss.TOKEN,
        "token of pushes": PUSH_SECRET,
    }
    async with running_caller(deployment) as caller:
        planted["project key"] = caller.session.headers["Authorization"].removeprefix("Bearer ")
        planted["key's secret"] = planted["project key"].rpartition("_")[2]
        told = await caller.call("POST", f"/v1/projects/{caller.project_id}/webhook-secrets", 201, json={})
        planted["signing"] = (await told.json())["secret"].removeprefix("whsec_")
        answers = [
            *await _plant_in_downloads(deployment, caller, planted, controls["downloads"]),
            *await _plant_in_transfers(deployment, caller, controls["transfers"]),
            *await _plant_in_orders(deployment, caller, planted, controls["orders"]),
            *await _plant_in_addresses(deployment, controls["addresses"]),
            *await _plant_in_tasks(caller, controls["tasks"]),
        ]
    places = {**await secret_search.collect_places(deployment, since), "answers": b"\n".join(answers)}

    # What is no secret is seen wherever it belongs, of each system, so the search looks at the right bytes.
    seen = {
        system: {place.partition("/")[0] for place, text in places.items() if control.encode() in text}
        for system, control in controls.items()
    }
    for system, belongs in SYSTEMS.items():
        assert seen[system] >= belongs, (system, seen[system])
    assert set().union(*seen.values()) >= ON_DISK
    logs = b"".join(text for place, text in places.items() if place.startswith("logs/"))
    for route in ("POST /v1/downloads", "POST /v1/transfers", "PUT /v1/platforms", "POST /v1/addresses/events"):
        assert route.encode() in logs, route
    assert b"POST /v1/create_task" in logs
    assert secret_search.find_secrets(planted, places) == []
    assert await secret_search.find_sealed_columns(deployment) == {(each.table, each.column) for each in sealed.COLUMNS}
    for name in secret_search.MEANT:
        path = deployment.data_dir / name
        assert not path.exists() or path.stat().st_mode & 0o077 == 0


async def _plant_in_downloads(
    deployment: Deployment, caller: Caller, planted: dict[str, str], control: str
) -> list[bytes]:
    """Put secrets into a source's address, its headers and a callback's address, of a good and a bad export."""
    planted |= {name: f"{name}{secrets.token_hex(16)}" for name in ("token", "header", "callback")}
    source = f"{deployment.source}/rows?rows=500&token={planted['token']}"
    good = await caller.start(
        source,
        page_size=100,
        file_name=control,
        headers={"X-Token": planted["header"]},
        callback=f"{deployment.source}/stats?token={planted['callback']}",
    )
    bad = await caller.start(f"{source}&faults=not_json&rate=1", page_size=100)
    for task_id in (good, bad):
        await caller.wait_for_end(task_id)
    return [await _answer(caller, f"/v1/downloads/{task_id}") for task_id in (good, bad)]


async def _plant_in_transfers(deployment: Deployment, caller: Caller, control: str) -> list[bytes]:
    """Send a file with GSE's secret; the secret is the operator's."""
    store = ObjectStore(deployment.settings.objects)
    await store.put(f"transfers/2/{sha256(CONTENT)}", CONTENT)
    await store.close()
    body = {
        "biz_id": 2,
        "app_id": 1,
        "file_path": f"/etc/{control}.conf",
        "file_name": f"{control}.conf",
        "signature": sha256(CONTENT),
        "target_user": "root",
        "target_file_dir": "/data/secrets",
        "target_agent_id": control,
    }
    joined = await caller.call("POST", "/v1/transfers", 202, json=body)
    path = f"/v1/transfers/{(await joined.json())['task_id']}"

    async def has_ended() -> bool:
        return bool(json.loads(await _answer(caller, path))["status"] == "Success")

    await eventually(has_ended)
    return [await _answer(caller, path)]


async def _plant_in_orders(
    deployment: Deployment, caller: Caller, planted: dict[str, str], control: str
) -> list[bytes]:
    """Fetch orders with a shop's token, of a good platform and of one that refuses it; alarms have an address."""
    planted["address of alarms"] = f"alarm{secrets.token_hex(16)}"
    fleet = Fleet(deployment, caller.project_id)
    good, bad = f"good-{control}", f"bad-{control}"
    notify_url = f"{deployment.source}/stats?token={planted['address of alarms']}"
    platform = await fleet.begin(good, PlatformScenario(orders=50, span_seconds=SPAN_SECONDS), notify_url=notify_url)
    planted["token of a shop"] = platform.tokens.good
    dead = PlatformScenario(orders=50, span_seconds=SPAN_SECONDS, faults=PlatformFaults(token_dead=True))
    await fleet.begin(bad, dead, notify_url=notify_url, retries=1)
    platform.market.freeze()
    platform.market.clock.advance(1_000)
    await fleet.complete(good)
    assert platform.calls["told"] > 0

    async def is_refused() -> bool:
        refused = "SELECT credentials_fault IS NOT NULL AS is_told FROM order_platforms WHERE platform = $1"
        return bool((await deployment.fetch(refused, bad))[0]["is_told"])

    await eventually(is_refused)
    shown = [await deployment.as_admin("GET", f"/v1/platforms/{number}") for number in (good, bad)]
    listed = await deployment.as_admin("GET", "/v1/orders", params={"platform": good, "limit": 100})
    return [json.dumps(each).encode() for each in (*shown, listed)]


async def _plant_in_addresses(deployment: Deployment, control: str) -> list[bytes]:
    """Push a change with the token of pushes, which modules apply with their own."""
    log = AddressLog(deployment, range(UPRN, UPRN + 1))
    await log.resume()
    await log.push(control, Topic.CREATE_UPDATE, {"uprn": UPRN, "address_id": 1, "record": {"name": control}})
    await log.settle()
    assert [address for _, address in log.states(Module.ED).values()] == [{"name": control}]
    query = {"uprn": UPRN, "history": "true"}

    async def list_history() -> list[Any]:
        """What is done goes to the history at the end of its cycle."""
        listed: list[Any] = (await deployment.as_admin("GET", "/v1/addresses/messages", params=query))["items"]
        return listed

    return [json.dumps(await eventually(list_history)).encode()]


async def _plant_in_tasks(caller: Caller, control: str) -> list[bytes]:
    """Make a task, hold it and end it, with the project's key."""
    config = {"task_type": control, "max_processing_time": 60, "max_retry_num": 1, "max_retry_interval": 1}
    data = {"task_type": control, "task_id": control, "user_id": "one", "task_content": control}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("register_task_type", {"task_type_data": config}),
        ("create_task", {"task_data": data}),
        ("hold_tasks", {"task_type": control, "limit": 1, "wait": 30}),
    ]
    answers = [await (await caller.call("POST", f"/v1/{route}", 200, json=body)).json() for route, body in steps]
    [task] = answers[-1]["task_list"]
    said = {"task_id": task["task_id"], "lease": task["lease"], "status": SUCCESS}
    answers.append(await (await caller.call("POST", "/v1/set_task", 200, json={"task_data": said})).json())
    assert [each["code"] for each in answers] == [0] * len(answers)
    return [json.dumps(each).encode() for each in answers]


async def _answer(caller: Caller, path: str) -> bytes:
    return await (await caller.call("GET", path, 200)).read()
