"""An installation with items of every kind in each system, for pictures and for checks of every page."""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from playwright.async_api import Page, expect

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from sims.gse.scenario import GseAction, GseRule, GseScenario
from sims.platforms import scenario as platforms
from stores.tables.addresses import AddressMessage, LogicalDelete
from tests.console.installation import Console, Project
from tests.console.operators import Operators
from tests.support import transfers
from tests.support.orders import since
from tests.support.tasks import FAILED, SUCCESS
from tests.support.waiting import eventually

PLATFORM, TROUBLED = "taobao-3021", "shop-eu-17"
RUNNING_ROWS = 60_000
AGENTS = 60
MESSAGES = 24
PURGED = 700_100
IN_TAB = "[role=tabpanel] > *"
BEAT_SECONDS = 2.0


@dataclass(frozen=True)
class Shown:
    """A page worth a look: its name, its address, who looks, and what has to be there before they do."""

    name: str
    path: str
    who: Literal["visitor", "project", "admin"] = "project"
    shows: str = "h1"


@dataclass(frozen=True)
class Addresses:
    """What the pages of addresses show."""

    message: int
    purge: str
    comparison: str
    unreadable: int


@dataclass(frozen=True)
class Showcase:
    """What was put in, and the pages that show it."""

    project: Project
    pages: list[Shown]
    running: str

    async def end(self, console: Console) -> None:
        """Stop what still runs."""
        path = f"/v1/downloads/{self.running}/cancel"
        assert (await console.api_client.ask("POST", path, key=self.project.key)).status == 202


async def open_and_wait(page: Page, shown: Shown) -> None:
    """Go to a page and wait until it shows what it has."""
    await page.goto(shown.path)
    await expect(page.locator(shown.shows).first).to_be_visible()
    await expect(page.locator("[aria-busy=true]")).to_have_count(0)


async def keep_busy(console: Console, showcase: Showcase) -> None:
    """Make each system work, by changing amounts, until it is cancelled."""
    videos = console.tasks(showcase.project, "transcode")
    sender, exports = console.transfers(showcase.project), console.exports(showcase.project)
    console.world.set(GseScenario(download_seconds=12, jitter_seconds=10))
    for turn in itertools.count():
        swell = 1 + math.sin(turn / 4)
        await videos.create_many(5 + round(20 * swell), user_id="u-2041", task_content="{}")
        await videos.finish(await videos.hold(limit=10 + round(15 * (2 - swell))))
        if turn % 6 == 0:
            await sender.join_many([f"0:10.0.5.{turn * 40 + number}" for number in range(40 + round(80 * swell))])
        if turn % 3 == 0:
            source = console.source.url(rows=2_000, seed=turn, delay_ms=150 + round(300 * swell))
            await exports.start(source, file_name=f"Picking list {turn // 3 + 1}", operator_id="10088", page_size=100)
        async with console.services.database.session() as session:
            session.add_all(_message(6 * turn + 5, datetime.now(UTC)) for _ in range(round(30 * swell)))
        await asyncio.sleep(BEAT_SECONDS)


async def furnish(console: Console) -> Showcase:
    """Create items in each system."""
    project = await console.make_project("Warehouse North")
    downloads, (job, transfer), failed, addresses, task = await asyncio.gather(
        _downloads(console, project),
        _transfers(console, project),
        _orders(console, project),
        _addresses(console),
        _tasks(console, project),
    )
    troubled = f"/console/orders/platforms/{TROUBLED}"
    pages = [
        Shown("sign-in", "/console", "visitor"),
        Shown("overview", "/console", "admin"),
        Shown("downloads", "/console/downloads"),
        Shown("download-running", f"/console/downloads/{downloads['running']}"),
        Shown("download", f"/console/downloads/{downloads['succeeded']}"),
        Shown("download-failed", f"/console/downloads/{downloads['failed']}"),
        Shown("download-new", "/console/downloads/new"),
        Shown("transfers", "/console/transfers"),
        Shown("transfer", f"/console/transfers/jobs/{quote(job)}"),
        Shown("transfer-task", f"/console/transfers/tasks/{quote(transfer)}"),
        Shown("transfer-new", "/console/transfers/new"),
        Shown("orders", "/console/orders", "admin"),
        Shown("platform", f"/console/orders/platforms/{PLATFORM}", "admin"),
        Shown("platform-slices", f"{troubled}?tab=slices", "admin", IN_TAB),
        Shown("platform-settings", f"{troubled}?tab=config", "admin", IN_TAB),
        Shown("platform-comparisons", f"{troubled}?tab=reports", "admin", IN_TAB),
        Shown("platform-setup", f"{troubled}/setup", "admin"),
        Shown("order-slice", f"{troubled}/slices/{quote(failed)}", "admin"),
        Shown("orders-browse", "/console/orders/browse", "admin"),
        Shown("orders-defaults", "/console/orders/defaults", "admin"),
        Shown("audit", "/console/audit", "admin"),
        Shown("addresses", "/console/addresses", "admin"),
        Shown("addresses-history", "/console/addresses/history", "admin"),
        Shown("address-message", f"/console/addresses/messages/{addresses.message}", "admin"),
        Shown("logical-deletes", "/console/addresses/logical-deletes", "admin"),
        Shown("purge", f"/console/addresses/logical-deletes/purges/{addresses.purge}", "admin"),
        Shown("comparisons", "/console/addresses/comparisons", "admin"),
        Shown("comparison", f"/console/addresses/comparisons/{addresses.comparison}", "admin"),
        Shown("quarantine", "/console/addresses/quarantine", "admin"),
        Shown("quarantined", f"/console/addresses/quarantine/{addresses.unreadable}", "admin"),
        Shown("tasks", "/console/tasks"),
        Shown("task-type", "/console/tasks/types/resize-images"),
        Shown("task-lanes", "/console/tasks/types/resize-images/lanes"),
        Shown("task-archive", "/console/tasks/types/resize-images/archive"),
        Shown("task", f"/console/tasks/tasks/{quote(task)}"),
    ]
    return Showcase(project, pages, downloads["running"])


async def _downloads(console: Console, project: Project) -> dict[str, str]:
    exports = console.exports(project)
    url = console.source.url

    async def done(name: str, source: str, **request: Any) -> str:
        ended = await exports.run(source, file_name=name, operator_id="10086", **request)
        return str(ended["task_id"])

    succeeded, failed, *_ = await asyncio.gather(
        done("Stock by warehouse", url(rows=12_000, seed=3), page_size=1_000),
        done("Returns 2026-Q3", url(rows=2_000, seed=4, faults="not_found", rate=1), page_size=500),
        done("Price list 2026-11", url(rows=4_000, seed=5), page_size=1_000, type="excel"),
        done("Suppliers", url(rows=800, seed=6), page_size=400),
    )
    slow = url(rows=RUNNING_ROWS, seed=7, delay_ms=400)
    running = await exports.start(slow, file_name="Orders 2026-10", operator_id="10087", page_size=200)

    async def half() -> bool:
        return ((await exports.status(running))["rows"] or 0) > RUNNING_ROWS / 20

    await eventually(half)
    return {"succeeded": succeeded, "failed": failed, "running": running}


async def _transfers(console: Console, project: Project) -> tuple[str, str]:
    helper = console.transfers(project)
    refused = GseRule(action=GseAction.FAIL, agent=r"0:10\.0\.9\..*", code=126, message="permission denied")
    console.world.set(GseScenario(**transfers.QUICK.model_dump() | {"rules": (refused,)}))
    await helper.store()
    await transfers.window_begins(1)
    agents = [f"0:10.0.{9 if number % 12 == 5 else number % 4}.{number}" for number in range(1, AGENTS + 1)]
    tasks = await helper.join_many(agents)
    status = await helper.status(tasks[0])
    await helper.wait_for_job_end(transfers.job_of(status))
    # The sixth host is one of those that are refused.
    return transfers.job_of(status), tasks[5]


async def _orders(console: Console, project: Project) -> str:
    helper = console.orders(project)
    platform = helper.play(platforms.PlatformScenario(orders=4_000, span_seconds=14_400), PLATFORM)
    await helper.set_up(PLATFORM)
    await helper.configure(PLATFORM, starttime=since(platform, seconds=14_400))
    await helper.fetch(PLATFORM)
    broken = platforms.PlatformScenario(orders=500, span_seconds=7_200, faults=platforms.PlatformFaults(errors=1))
    troubled = helper.play(broken, TROUBLED)
    await helper.set_up(TROUBLED)
    await helper.configure(TROUBLED, starttime=since(troubled, seconds=3_600), retries=0)

    async def failed() -> str:
        await helper.fetch(TROUBLED)
        slices = (await helper.ask("GET", f"/v1/platforms/{TROUBLED}/slices?state=failed")).body["items"]
        return str(slices[0]["slice"]) if slices else ""

    return await eventually(failed)


async def _addresses(console: Console) -> Addresses:
    operators = Operators(console)
    await operators.store(Topic.SWAP, b'{"uprn": 100010001, "uprn_2": ')
    message = await _log(console)
    signed = {"who": "Ada", "reason": "the land register closed them"}
    purge = await operators.ask("POST", "logical-deletes:purge", json={**signed, "address_ids": [PURGED]})
    comparison = await operators.ask("POST", "comparisons")

    async def ended(path: str) -> bool:
        return str((await operators.ask("GET", path))["state"]) != "running"

    for path in (f"logical-deletes/purges/{purge['purge_id']}", f"comparisons/{comparison['comparison_id']}"):
        await eventually(partial(ended, path))
    unreadable = (await operators.ask("GET", "quarantine"))["items"][0]["quarantine_id"]
    return Addresses(message, purge["purge_id"], comparison["comparison_id"], unreadable)


async def _log(console: Console) -> int:
    now = datetime.now(UTC)
    rows = [_message(number, now - timedelta(minutes=3 * number)) for number in range(MESSAGES)]
    async with console.services.database.session() as session:
        session.add_all(rows)
        flags = {f"{module}_flag": "N" for module in (Module.OD, Module.WFM)} | {f"{Module.ED}_flag": "Y"}
        session.add_all(
            LogicalDelete.model_validate(
                {"address_id": PURGED + n, "uprn": 100_010_000 + n, "log_id": n + 1, "create_date": now, **flags}
            )
            for n in range(8)
        )
        await session.flush()
        ids = [row.id for row in rows]
    return int(ids[0] or 0)


def _message(number: int, created_at: datetime) -> AddressMessage:
    """Mostly done, some waiting, and every sixth given up by one module."""
    uprn = 100_020_000 + number
    failed, waiting = number % 6 == 0, number % 6 == 5
    acks = dict.fromkeys(("ed_ack", "im_ack", "wfm_ack", "od_ack"), None if waiting else "Y")
    trace = None
    if failed:
        acks["wfm_ack"] = "N"
        trace = "ModuleFailed: wfm answered 503 to /operations: the scheduler is being upgraded"
    return AddressMessage(
        topic=Topic.CREATE_UPDATE,
        uprn_1=uprn,
        msg_no=secrets.token_hex(8),
        payload={
            "uprn": uprn,
            "address_id": 700_000 + number,
            "record": {"street": "Mill Lane", "number": str(number)},
        },
        proc_flag=None if waiting else "N" if failed else "Y",
        proc_update_date=None if waiting else created_at + timedelta(seconds=40),
        retry_times=2 if failed else 0,
        createdat=created_at,
        address_id=700_000 + number,
        wfm_stack_trace=trace,
        **acks,
    )


async def _tasks(console: Console, project: Project) -> str:
    video, images = console.tasks(project, "transcode"), console.tasks(project, "resize-images")
    for each in (video, images):
        await each.register()
    await video.create_many(120, user_id="u-2041", task_content='{"profile": "1080p"}', task_stage="encode")
    [first, *_] = await images.create_many(40, user_id="u-77", task_content='{"width": 640}', task_stage="scale")
    held = await images.hold(limit=20)
    await images.finish(held[:10], SUCCESS)
    await images.finish(held[10:13], FAILED)

    async def archived() -> bool:
        return bool((await images.task(held[0]["task_id"]))["archived"])

    await eventually(archived)
    return first
