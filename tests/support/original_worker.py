"""flowSvr's own client and worker, as their bytes look from outside: what they send, and what they make of answers."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.api import ApiClient, Reply

Json = dict[str, Any]

ZERO_TIME = "0001-01-01T00:00:00Z"
ZEROS: Json = {
    "user_id": "",
    "task_id": "",
    "task_type": "",
    "task_stage": "",
    "status": 0,
    "priority": None,
    "crt_retry_num": 0,
    "max_retry_num": 0,
    "max_retry_interval": 0,
    "schedule_log": "",
    "context": "",
    "order_time": 0,
    "create_time": ZERO_TIME,
    "modify_time": ZERO_TIME,
}
"""All members of a task as the client sends them: none is ever left out."""
TEXTS = ("user_id", "task_id", "task_type", "task_stage", "schedule_log", "context", "create_time", "modify_time")
HISTORY_MAX = 3
AS_TEXT = {"Content-Type": "application/json;charset=utf-8"}


@dataclass(frozen=True)
class OriginalClient:
    """Sends what the original's Go client sends, byte for byte, and decodes answers as strictly as Go does."""

    api_client: ApiClient
    key: str

    async def create(self, **given: Any) -> Json:
        """Create a task, with all members of `TaskData`."""
        return await self._post("create_task", {"task_data": ZEROS | given}, AS_TEXT)

    async def hold(self, task_type: str, limit: int = 0) -> list[Json]:
        """Hold tasks: the query and the body say the same, and no header says what the body is."""
        body = {"task_type": task_type, "limit": limit}
        answer = await self._post(f"hold_tasks?limit={limit}&task_type={task_type}", body, {})
        assert answer["code"] == 0, answer
        return [decode_task(task) for task in answer["task_list"]]

    async def set(self, told: Json) -> Json:
        """Say what became of a task."""
        return await self._post("set_task", {"task_data": ZEROS | told}, AS_TEXT)

    async def get(self, task_id: str) -> Json:
        """Look at a task."""
        answer = await self._ask("GET", f"get_task?taskId={task_id}", b"", {})
        return decode_task(answer.body["task_data"])

    async def find(self, task_type: str, status: int, limit: int) -> list[Json]:
        """List tasks."""
        answer = await self._ask("GET", f"get_task_list?limit={limit}&status={status}&taskType={task_type}", b"", {})
        return [decode_task(task) for task in answer.body["task_list"]]

    async def _post(self, route: str, body: Json, headers: Mapping[str, str]) -> Json:
        reply = await self._ask("POST", route, json.dumps(body, separators=(",", ":")).encode(), headers)
        answer: Json = reply.body
        assert type(answer["code"]) is int
        return answer

    async def _ask(self, method: str, route: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        shown = base64.b64encode(f":{self.key}".encode()).decode()
        sent = {"User-Agent": "Go-http-client/1.1", "Authorization": f"Basic {shown}", **headers}
        # Without this the session would name a type of its own.
        return await self.api_client.ask(
            method, f"/v1/{route}", headers=sent, data=body or None, skip_auto_headers=("Content-Type",)
        )


def decode_task(task: Json) -> Json:
    """A task as the Go struct takes it: members of another type fail, unknown ones are passed over."""
    for name in TEXTS:
        assert type(task[name]) is str, (name, task[name])
    for name in ZEROS.keys() - set(TEXTS):
        assert type(task[name]) is int, (name, task[name])
    return {name: task[name] for name in ZEROS}


@dataclass(frozen=True)
class Attempt:
    """One turn of the original's worker at a task that it holds."""

    task: Json
    log: Json = field(default_factory=dict)

    @classmethod
    def of(cls, task: Json) -> Attempt:
        """Begin, with the attempts of the log."""
        try:
            log = json.loads(task["schedule_log"])
        except ValueError:
            log = {}
        log = log if isinstance(log, dict) else {}
        empty = {"TraceId": "", "ErrMsg": "", "Cost": ""}
        return cls(task, {"LastData": log.get("LastData", empty), "HistoryDatas": log.get("HistoryDatas")})

    def succeeds(self, **changed: Any) -> Json:
        """The handler set status 3."""
        return self._over("", {"status": 3} | changed)

    def goes_on(self, stage: str, **changed: Any) -> Json:
        """The handler set no status: the next stage is due."""
        return self._over("", {"status": 1, "task_stage": stage} | changed)

    def fails(self, error: str = "no luck", **changed: Any) -> Json:
        """The handler returned an error."""
        used_up = self.task["crt_retry_num"] >= self.task["max_retry_num"]
        said = {"status": 4} if used_up else {"status": 1, "crt_retry_num": self.task["crt_retry_num"] + 1}
        return self._over(error, said | changed)

    def is_not_loaded(self) -> Json:
        """The context could not be read: nothing has been tried."""
        return self._said(status=1)

    def panics(self) -> Json:
        """The handler died: the client sends what it has."""
        return self._said(status=2)

    def _over(self, error: str, said: Json) -> Json:
        history = [*(self.log["HistoryDatas"] or []), self.log["LastData"]][-HISTORY_MAX:]
        last = {"TraceId": str(uuid.uuid4()), "ErrMsg": error, "Cost": "3ms"}
        ended = replace(self, log={"LastData": last, "HistoryDatas": history})
        return ended._said(**{"order_time": self.task["order_time"] + 1} | said)

    def _said(self, **said: Any) -> Json:
        kept = ("task_id", "task_type", "task_stage", "context", "user_id", "crt_retry_num", "max_retry_num")
        log = json.dumps(self.log, separators=(",", ":"))
        return {name: self.task[name] for name in kept} | {"schedule_log": log} | said
