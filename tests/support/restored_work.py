"""Work of all five systems around a backup, and what must have become of it after a restore."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.objects import ObjectStore
from sims.gse.tasks import FileSpot
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.table_copies import GAP
from tests.support.address_log import AddressLog
from tests.support.caller import Caller
from tests.support.deployment import Deployment
from tests.support.downloads import expected_rows, parse_csv
from tests.support.order_fleet import Fleet
from tests.support.orders import count_findings
from tests.support.tasks import PENDING, RUNNING, SUCCESS
from tests.support.transfers import CONTENT, FOLDER, sha256
from tests.support.waiting import eventually

ROWS, SLOW_ROWS, SEED = 300, 1_000, 5
UPRNS = range(500, 508)
PLATFORM = "shop"
TYPE = "backed-up"
BUSY = 8036
"""The code of a request that may be repeated: no worker answered in time, as on a machine that is busy."""
UNKNOWN, TOO_LATE = 8035, 8041
STORED, STAGED = f"transfers/2/{sha256(CONTENT)}", "staging/left-over"

Json = dict[str, Any]


class WorkOfAllSystems:
    """Work of each system that is done, and under way, and accepted too late for the backup.

    Args:
        source: The base address of the sample source.
    """

    def __init__(self, deployment: Deployment, caller: Caller, source: str) -> None:
        self.source = source
        self.done_file = b""
        self.downloads: dict[str, str] = {}
        self.transfers: dict[str, str] = {}
        self.tasks: dict[str, str] = {}
        self.held: dict[str, Json] = {}
        self.pushed: dict[str, tuple[Topic, Json]] = {}
        self.use(deployment, caller)

    def use(self, deployment: Deployment, caller: Caller) -> None:
        """Go on with this installation."""
        self.deployment, self.caller = deployment, caller
        self.fleet = Fleet(deployment, caller.project_id)
        self.log = AddressLog(deployment, UPRNS)

    async def begin(self) -> None:
        """Have something done, and much under way, in every system."""
        store = ObjectStore(self.deployment.settings.objects)
        await store.put(STORED, CONTENT, content_type="text/plain", metadata={"rows": "1"})
        await store.put(STAGED, b"half of it")
        await store.close()
        self.downloads["done"] = await self.start_download(SEED)
        assert (await self.caller.wait_for_end(self.downloads["done"]))["state"] == "succeeded"
        self.done_file = await self.caller.file(self.downloads["done"])
        await self._begin_tasks()
        await self.fleet.begin(PLATFORM, PlatformScenario(orders=200, faults=PlatformFaults(slow_ms=50)))
        await self.fleet.wait_until_done(PLATFORM, 0.1)
        await self.log.resume()
        for uprn in UPRNS:
            await self.create_address(f"before-{uprn}", uprn, 9_000 + uprn)
        self.transfers["under way"] = await self.join("host-1")
        # Last, so that it is under way whatever else took long.
        url = self._build_source_url(rows=SLOW_ROWS, seed=SEED, delay_ms=500)
        self.downloads["under way"] = await self.caller.start(url, page_size=100)
        await self.caller.until(self.downloads["under way"], lambda status: status["rows"] > 0)

    async def _begin_tasks(self) -> None:
        config = {"task_type": TYPE, "max_processing_time": 3_600, "max_retry_num": 5, "max_retry_interval": 0}
        await self.ask("POST", "register_task_type", json={"task_type_data": config})
        for name in ("ended", "held", "waiting"):
            await self.create_task(name)
        await self.hold(2)
        assert [*self.held] == ["ended", "held"]
        await self.set_task(self.held["ended"])

    async def go_on(self) -> None:
        """Have more accepted and done, which the backup does not know."""
        self.downloads["late"] = await self.start_download(SEED + 1)
        self.transfers["late"] = await self.join("host-2")
        await self.create_task("late")
        await self.set_task(self.held["held"])
        await self.hold(1)
        await self.log.settle()
        await self.create_address("late", UPRNS[0], 9_100)
        await self.push("late swap", Topic.SWAP, {"uprn_1": UPRNS[2], "uprn_2": UPRNS[3]})
        await self.log.settle()
        ended = await self.caller.wait_for_end(self.downloads["late"])
        assert ended["state"] == "succeeded", ended

    async def start_download(self, seed: int) -> str:
        """Start a quick download; asked for again with the same seed, it is the same request."""
        return await self.caller.start(self._build_source_url(rows=ROWS, seed=seed), page_size=100, key=f"seed-{seed}")

    def _build_source_url(self, **parameters: int) -> str:
        return f"{self.source}/rows?{urlencode(parameters)}"

    async def ask(self, method: str, route: str, code: int = 0, **options: Any) -> Json:
        """Send a request of flowSvr's until it is not answered with "busy"."""

        async def request() -> Json:
            body: Json = await (await self.caller.call(method, f"/v1/{route}", 200, **options)).json()
            return {} if body["code"] == BUSY else body

        body = await eventually(request)
        assert body["code"] == code, body
        return body

    async def create_task(self, name: str) -> None:
        """Create a task, with its name as content."""
        data = {"task_type": TYPE, "task_id": name, "user_id": "u", "task_content": name}
        self.tasks[name] = (await self.ask("POST", "create_task", json={"task_data": data}))["task_id"]

    async def hold(self, limit: int) -> None:
        """Hold tasks as their worker."""
        held = await self.ask("POST", "hold_tasks", json={"task_type": TYPE, "limit": limit})
        self.held |= {task["task_content"]: task for task in held["task_list"]}

    async def set_task(self, task: Json, code: int = 0) -> str:
        """Say that a held task has succeeded; return the sentence of the answer."""
        said = {"task_id": task["task_id"], "lease": task["lease"], "status": SUCCESS}
        message: str = (await self.ask("POST", "set_task", code, json={"task_data": said}))["msg"]
        return message

    async def list_task_states(self) -> dict[str, int]:
        """Return the state of each task by its content."""
        params = {"task_type": TYPE, "limit": 100}
        listed = (await self.ask("GET", "get_task_list", params=params))["task_list"]
        return {task["task_content"]: task["status"] for task in listed}

    async def join(self, agent: str) -> str:
        """Ask for the file on a host."""
        body = {
            "biz_id": 2,
            "app_id": 7,
            "file_path": "/etc/app.conf",
            "file_name": "app.conf",
            "signature": sha256(CONTENT),
            "target_user": "root",
            "target_file_dir": FOLDER,
            "target_agent_id": agent,
        }
        answer = await self.caller.call("POST", "/v1/transfers", 202, json=body)
        task_id: str = (await answer.json())["task_id"]
        return task_id

    async def wait_for_answer(self, task_id: str) -> tuple[int, Json]:
        """Return the answer about a transfer that is not pending and not running."""

        async def read() -> tuple[int, Json]:
            async with self.caller.session.get(f"/v1/transfers/{quote(task_id)}") as answer:
                body: Json = await answer.json()
                assert answer.status in (200, 410), body
                assert body["status"] not in ("Pending", "Running"), body
                return answer.status, body

        return await eventually(read)

    def has_file(self, agent: str) -> bool:
        """Return whether a host has the file."""
        return self.deployment.disks.path(FileSpot(agent, "", FOLDER, sha256(CONTENT))).exists()

    async def create_address(self, name: str, uprn: int, address_id: int) -> None:
        """Publish what is at a UPRN."""
        payload = {"uprn": uprn, "address_id": address_id, "record": {"n": address_id}}
        await self.push(name, Topic.CREATE_UPDATE, payload)

    async def push(self, name: str, topic: Topic, payload: Json) -> None:
        """Push a message under a name, which it keeps when it is pushed again."""
        self.pushed[name] = topic, payload
        await self.log.push(name, topic, payload)


async def check_restored_work(work: WorkOfAllSystems, messages: set[str]) -> None:
    """Have callers do what docs/how-to/backup.md says, and compare what comes of it.

    Args:
        messages: The names of the messages of addresses that the backup has.
    """
    await _check_objects(work)
    await _check_transfers(work)
    await _check_tasks(work)
    await _check_addresses(work, messages)
    await work.fleet.complete(PLATFORM)
    wrong = count_findings(await work.fleet.findings(PLATFORM))
    assert not any(wrong.values()), wrong
    # Last: meanwhile the engine finds that the fetcher of before the restore has no heartbeat.
    await _check_downloads(work)


async def _check_objects(work: WorkOfAllSystems) -> None:
    """Objects are there with all that the store knows of them, but for what unfinished work has staged."""
    store = ObjectStore(work.deployment.settings.objects)
    head = await store.head(STORED)
    assert head is not None
    assert (head.content_type, head.metadata) == ("text/plain", {"rows": "1"})
    assert await store.head(STAGED) is None
    await store.close()


async def _check_downloads(work: WorkOfAllSystems) -> None:
    """What was done can be fetched, what was under way ends right; what came later is unknown, and begun again."""
    assert await work.caller.file(work.downloads["done"]) == work.done_file
    assert await work.start_download(SEED) == work.downloads["done"]
    status = await work.caller.wait_for_end(work.downloads["under way"])
    assert status["state"] == "succeeded", status
    rows = parse_csv(await work.caller.file(work.downloads["under way"]))
    assert rows == expected_rows(SEED, range(SLOW_ROWS))
    await work.caller.call("GET", f"/v1/downloads/{work.downloads['late']}", 404)
    again = await work.start_download(SEED + 1)
    assert (await work.caller.wait_for_end(again))["state"] == "succeeded"
    assert parse_csv(await work.caller.file(again)) == expected_rows(SEED + 1, range(ROWS))


async def _check_transfers(work: WorkOfAllSystems) -> None:
    """The open job ends; a task of later is gone once its window is past, and its request can be repeated."""
    _, ended = await work.wait_for_answer(work.transfers["under way"])
    assert ended["status"] == "Success", ended
    assert work.has_file("host-1")
    status, problem = await work.wait_for_answer(work.transfers["late"])
    assert (status, problem["code"]) == (410, "transfer_expired")
    assert "an older backup was restored here" in problem["detail"]
    _, again = await work.wait_for_answer(await work.join("host-2"))
    assert again["status"] == "Success", again


async def _check_tasks(work: WorkOfAllSystems) -> None:
    """What was held is held, what had ended has; what was said since is said again, or refused in a sentence."""

    async def is_as_backed_up() -> bool:
        return await work.list_task_states() == {"ended": SUCCESS, "held": RUNNING, "waiting": PENDING}

    await eventually(is_as_backed_up)
    await work.set_task(work.held["held"])
    assert "not held under this lease" in await work.set_task(work.held["waiting"], TOO_LATE)
    late = {"task_id": work.tasks["late"], "lease": 4}
    assert "There is no task" in await work.set_task(late, UNKNOWN)
    await work.create_task("late")
    await work.hold(2)
    for name in ("waiting", "late"):
        await work.set_task(work.held[name])
    assert await work.list_task_states() == dict.fromkeys(work.tasks, SUCCESS)


async def _check_addresses(work: WorkOfAllSystems, before: set[str]) -> None:
    """The log has what came before; what came later is delivered again and applied, under ids that no module knows."""
    rows = await work.log.settle()
    assert {row["msg_no"] for row in rows.values()} == before
    for name, (topic, payload) in [*work.pushed.items()]:
        await work.log.push(name, topic, payload)
    rows = await work.log.settle()
    assert sorted(row["msg_no"] for row in rows.values()) == sorted(work.pushed)
    assert all((number > GAP) == (row["msg_no"] not in before) for number, row in rows.items())
    # The swap was applied twice, which its publisher mends with what is at both UPRNs.
    for uprn, other in ((UPRNS[2], UPRNS[3]), (UPRNS[3], UPRNS[2])):
        await work.create_address(f"mending-{uprn}", uprn, 9_000 + other)
    await work.log.settle()
    expected = {uprn: 9_000 + uprn for uprn in UPRNS}
    expected |= {UPRNS[0]: 9_100, UPRNS[2]: 9_000 + UPRNS[3], UPRNS[3]: 9_000 + UPRNS[2]}
    for module in Module:
        assert work.log.states(module) == {uprn: (id_, {"n": id_}) for uprn, id_ in expected.items()}, module
