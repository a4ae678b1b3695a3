"""An estate: one project that owns something real of every kind that a route can name, all of it marked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from api.http.routes import Route
from domain import secrets
from domain.orders.windows import TimeWindow, Watermarks
from infra.database import TableRow
from services.services import Services
from sims.platforms.dialects.plain import PLAIN
from sims.receiver import Receiver
from stores.tables.addresses import AddressMessage, LogicalDelete, QuarantinedMessage
from stores.tables.orders import Order, OrderBackfill, OrderPlatform, OrderSlice
from tests.support.api import ApiClient
from tests.support.downloads import FINAL
from tests.support.tasks import good
from tests.support.waiting import eventually

MARK = "nightingale"
"""A text in all contents of an estate: a caller of another project who finds it has seen too much."""
PLATFORM = f"{MARK}-shop"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = TimeWindow(start=DAY, end=DAY + timedelta(hours=1))
SIGNATURE = "ab" * 32
BACKFILL = "b" * 16

IDS_OF_NOTHING: Final[Mapping[str, str]] = {
    "project_id": "prj_" + "0" * 16,
    "key_id": "0" * 12,
    "task_id": "dl_" + "0" * 24,
    "transfer_id": "AsyncDownloadTask:1:2:/etc/app.conf:00000000-0000-8000-8000-000000000000",
    "job_id": "AsyncDownloadJob:1:2:/etc/app.conf:4000000000",
    "delivery_id": "msg_" + "0" * 32,
    "platform": "nobodys-shop",
    "slice": str(TimeWindow(start=DAY, end=DAY + timedelta(minutes=1))),
    "backfill_id": "0" * 16,
    "day": "2020-01-01",
    "message_id": "999999",
    "quarantine_id": "999999",
    "purge_id": "0" * 24,
    "comparison_id": "20200101T000000Z",
}
"""An id of each kind that a path can name, in its form, of something that does not exist."""


def fill_path(route: Route, ids: Mapping[str, Any]) -> str:
    """Return a route's path with these ids."""
    own = {"transfers": {"task_id": ids["transfer_id"]}, "systems": {"system": "tasks"}}.get(route.tag, {})
    known = {name: quote(str(each), safe="") for name, each in {**ids, **own}.items()}
    new = set(re.findall(r"{(\w+)}", route.path)) - known.keys()
    assert not new, (
        f"{route.path} names {sorted(new)}: add it to IDS_OF_NOTHING and to Estate in tests/support/estates.py"
    )
    return route.path.format_map(known)


@dataclass(frozen=True)
class Estate:
    """What a project owns, by the names that paths, queries and bodies have for it."""

    project_id: str
    key: str
    key_id: str
    task_id: str
    delivery_id: str
    transfer_id: str
    job_id: str
    platform: str
    mark: str
    order_id: str
    task_type: str
    queued_id: str
    held_id: str
    lease: int
    slice: str
    backfill_id: str
    day: str
    message_id: str
    quarantine_id: str
    address_id: int
    purge_id: str
    comparison_id: str

    def path(self, route: Route) -> str:
        """The address of what this project owns."""
        return fill_path(route, {each.name: getattr(self, each.name) for each in fields(self)})

    def made_up(self) -> Estate:
        """Parameters of objects that do not exist, in the same forms."""
        same_as_others: dict[str, Any] = {
            name: each for name, each in IDS_OF_NOTHING.items() if name not in {"transfer_id", "job_id"}
        }
        return replace(
            self,
            **same_as_others,
            transfer_id=_other_end(self.transfer_id),
            job_id=self.job_id.replace("/etc/", "/opt/"),
            order_id="nobodys-1",
            task_type="nobodys",
            queued_id=self.queued_id.replace(self.task_type, "nobodys"),
            held_id=self.held_id.replace(self.task_type, "nobodys"),
            address_id=999_999,
        )


def _other_end(task_id: str) -> str:
    return task_id[:-1] + ("0" if task_id[-1] != "0" else "1")


@dataclass(frozen=True)
class Builder:
    """Builds an estate through the API where it can, and in the tables where that would take a whole world."""

    api_client: ApiClient
    services: Services
    receiver: Receiver
    project_id: str
    key: str

    async def build(self) -> Estate:
        """Something of everything."""
        parsed = secrets.parse_api_key(self.key)
        assert parsed is not None
        task_id = await self._export()
        job = await self._ask("POST", "/v1/transfers", 202, self._transfer())
        await self._platform()
        queued_id, held = await self._tasks()
        mark = await self._ask("POST", "/v1/orders/marks", 201, {"platform": PLATFORM})
        message_id, quarantine_id = await self._addresses()
        address = {"address_ids": [7], "who": MARK, "reason": MARK}
        purge = await self._operate("/v1/addresses/logical-deletes:purge", address)
        comparison = await self._operate("/v1/addresses/comparisons")
        await self._operate(f"/v1/platforms/{PLATFORM}/reports", {"day": "2026-01-01"})
        return Estate(
            project_id=self.project_id,
            key=self.key,
            key_id=parsed.key_id,
            task_id=task_id,
            delivery_id=await self._delivery(task_id),
            transfer_id=job["task_id"],
            job_id=job["job_id"],
            platform=PLATFORM,
            mark=mark["mark"],
            order_id=f"{MARK}-1",
            task_type=MARK,
            queued_id=queued_id,
            held_id=held["task_id"],
            lease=held["lease"],
            slice=str(HOUR),
            backfill_id=BACKFILL,
            day="2026-01-01",
            message_id=message_id,
            quarantine_id=quarantine_id,
            address_id=7,
            purge_id=purge["purge_id"],
            comparison_id=comparison["comparison_id"],
        )

    async def _ask(self, method: str, path: str, status: int = 200, body: Any = None) -> dict[str, Any]:
        sent = {} if body is None else {"json": body}
        reply = await self.api_client.ask(method, path, key=self.key, **sent)
        assert reply.status == status, reply.body
        answer: dict[str, Any] = reply.body
        return answer

    async def _operate(self, path: str, body: Any = None, *, method: str = "POST") -> dict[str, Any]:
        sent = {} if body is None else {"json": body}
        reply = await self.api_client.as_admin(method, path, **sent)
        assert reply.status in {200, 202}, reply.body
        answer: dict[str, Any] = reply.body
        return answer

    async def _export(self) -> str:
        wanted = {"data": [{"name": MARK}], "file_name": MARK, "operator_id": MARK, "callback": self.receiver.url()}
        task_id: str = (await self._ask("POST", "/v1/downloads", 202, wanted))["task_id"]

        async def is_over() -> bool:
            return (await self._ask("GET", f"/v1/downloads/{task_id}"))["state"] in FINAL

        await eventually(is_over)
        assert (await self._ask("GET", f"/v1/downloads/{task_id}"))["state"] == "succeeded"
        return task_id

    async def _delivery(self, task_id: str) -> str:
        async def find_finished_delivery() -> str:
            items = (await self._ask("GET", f"/v1/downloads/{task_id}/deliveries"))["items"]
            return next((each["delivery_id"] for each in items if each["finished_at"]), "")

        return await eventually(find_finished_delivery)

    def _transfer(self) -> dict[str, Any]:
        return {
            "biz_id": 2,
            "app_id": 7,
            "file_path": f"/etc/{MARK}.conf",
            "file_name": f"{MARK}.conf",
            "signature": SIGNATURE,
            "target_user": MARK,
            "target_file_dir": f"/data/{MARK}",
            "target_agent_id": MARK,
        }

    async def _platform(self) -> None:
        setup = {
            "project_id": self.project_id,
            "kind": "plain",
            "shop": MARK,
            "base_url": self.receiver.base,
            "capability": PLAIN.model_dump(mode="json"),
        }
        path = f"/v1/platforms/{PLATFORM}"
        await self._operate(path, setup, method="PUT")
        await self._operate(f"{path}/pause", {"who": "ann", "reason": "closed"})
        first = {"platform": PLATFORM, "start_at": HOUR.start, "end_at": HOUR.end, "track": "live"}
        order = {"platform": PLATFORM, "shop": MARK, "order_id": f"{MARK}-1", "modified_at": DAY, "asked_at": DAY}
        marks = Watermarks(starts_at=DAY, history_to=DAY, live_from=DAY, claimed_to=HOUR.end, complete_to=HOUR.end)
        async with self.services.database.session() as session:
            row = await session.get_one(OrderPlatform, PLATFORM)
            row.sqlmodel_update(marks.model_dump())
            session.add(row)
        again = {"start_at": HOUR.start, "end_at": HOUR.end, "asked_by": MARK, "asked_at": DAY, "finished_at": DAY}
        await self._write(
            OrderSlice.model_validate({**first, "claimed_at": DAY, "reason": MARK}),
            OrderBackfill.model_validate(
                {**again, "platform": PLATFORM, "backfill_id": BACKFILL, "workflow_id": BACKFILL, "state": "succeeded"}
            ),
            Order.model_validate({**order, "version": 1, "revision": 1, "digest": b"1", "raw": f'{{"id":"{MARK}-1"}}'}),
        )

    async def _write(self, *rows: TableRow) -> None:
        async with self.services.database.session() as session:
            session.add_all(rows)

    async def _tasks(self) -> tuple[str, dict[str, Any]]:
        good(await self._ask("POST", "/v1/register_task_type", body={"task_type": MARK, "max_processing_time": 3_600}))
        new = {"task_type": MARK, "user_id": MARK, "task_content": MARK, "task_id": MARK}
        first: str = good(await self._ask("POST", "/v1/create_task", body={"task_data": new}))["task_id"]
        held = good(await self._ask("POST", "/v1/hold_tasks", body={"task_type": MARK}))["task_list"]
        assert [each["task_id"] for each in held] == [first]
        second = good(await self._ask("POST", "/v1/create_task", body={"task_data": {**new, "task_id": ""}}))
        return second["task_id"], held[0]

    async def _addresses(self) -> tuple[str, str]:
        message = {"topic": "deleteInfinityAddress", "uprn_1": 1, "msg_no": MARK, "payload": {"text": MARK}}
        unread = {"topic": MARK, "msg_no": MARK, "raw": MARK.encode(), "raw_bytes": len(MARK), "reason": MARK}
        listed = {"address_id": 7, "od_flag": "Y", "wfm_flag": "N", "ed_flag": "N", "uprn": 1, "log_id": 1}
        now = {"createdat": DAY, "created_at": DAY, "create_date": DAY}
        log = AddressMessage.model_validate({**message, **now, "proc_flag": "N", "retry_times": 2})
        quarantine = QuarantinedMessage.model_validate({**unread, **now})
        await self._write(log, quarantine, LogicalDelete.model_validate({**listed, **now}))
        return str(log.id), str(quarantine.id)
