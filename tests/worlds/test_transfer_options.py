"""Each field of a request of transfers is honoured: two of its values lead to outcomes that differ.

A new field needs a case: a field without one fails here.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

import api.transfers
from api.http.models import Request
from api.transfers.requests import (
    CreateTransfersRequest,
    HostTargetsQuery,
    JobTargetsQuery,
    RetryTransferJobRequest,
    SetTransferPermissionsRequest,
    SingleTargetTransferRequest,
    TargetRequest,
    TransferFileRequest,
    TransferJobPath,
    TransferJobsQuery,
    TransferPermissionRequest,
    TransferTaskPath,
)
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseRule
from tests.support.transfers import CONTENT, QUICK, Transfers, job_of, running_transfers, sha256

CONTENTS = (b"one content\n" * 100, b"another content\n" * 100)
NO_USER, TOO_LARGE = 122, 119
NEXT = "next_cursor of the page before"
FIRST_CLOSES, SECOND_CLOSES = "the end of the first job's window", "the end of the second job's window"
MIXED = QUICK.model_copy(
    update={
        "rules": (
            GseRule(action=GseAction.FAIL, agent=".*nouser", code=NO_USER, message="no user root"),
            GseRule(action=GseAction.FAIL, agent=".*large", code=TOO_LARGE),
        )
    }
)


@dataclass(frozen=True)
class TransferOptionCase:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""


FILE: dict[str, TransferOptionCase] = {
    "biz_id": TransferOptionCase(2, 3),
    "app_id": TransferOptionCase(7, 8),
    "file_path": TransferOptionCase("/etc/app.conf", "/etc/other/app.conf"),
    "file_name": TransferOptionCase("app.conf", "other.conf", {"file_path": "/etc/"}),
    "signature": TransferOptionCase(sha256(CONTENTS[0]), sha256(CONTENTS[1])),
    "target_user": TransferOptionCase("root", "app"),
    "target_file_dir": TransferOptionCase("/data/one", "/data/other"),
}
TARGET: dict[str, TransferOptionCase] = {
    "target_agent_id": TransferOptionCase("agent-1", "agent-2"),
    "target_container_id": TransferOptionCase("", "4f1a"),
}
TARGETS: dict[str, TransferOptionCase] = {
    "targets": TransferOptionCase(
        [{"target_agent_id": "agent-1"}], [{"target_agent_id": "agent-1"}, {"target_agent_id": "agent-2"}]
    )
}
OF_A_JOB: dict[str, TransferOptionCase] = {
    "status": TransferOptionCase("Success", "Failed"),
    "reason": TransferOptionCase("gse_code", "cancelled"),
    "code": TransferOptionCase(NO_USER, TOO_LARGE),
    "target_agent_id": TransferOptionCase("fine-1", "nouser"),
    "limit": TransferOptionCase(1, 2),
    "cursor": TransferOptionCase(None, NEXT, {"limit": 1}),
}
OF_A_LIST: dict[str, TransferOptionCase] = {
    "ended": TransferOptionCase("true", "false"),
    "search": TransferOptionCase("first.conf", "second.conf"),
    "reason": TransferOptionCase("gse_code", "cancelled"),
    "window_closes_after": TransferOptionCase(FIRST_CLOSES, SECOND_CLOSES),
    "window_closes_before": TransferOptionCase(FIRST_CLOSES, SECOND_CLOSES),
    "limit": TransferOptionCase(1, 2),
    "cursor": TransferOptionCase(None, NEXT, {"limit": 1}),
}
HOST = {"target_agent_id": "fine-1"}
"""A host that both jobs have."""
OF_A_HOST: dict[str, TransferOptionCase] = {
    "target_agent_id": TransferOptionCase("fine-1", "nouser"),
    "status": TransferOptionCase("Success", "Failed", HOST),
    "reason": TransferOptionCase("gse_code", "cancelled", {"target_agent_id": "nouser"}),
    "limit": TransferOptionCase(1, 2, HOST),
    "cursor": TransferOptionCase(None, NEXT, HOST | {"limit": 1}),
}
RETRY: dict[str, TransferOptionCase] = {"reason": TransferOptionCase("cancelled", "gse_code")}
OPENED = {"biz_id": 2}
"""Opens what a request of this file asks for, to every app, host and folder."""
PERMISSION: dict[str, TransferOptionCase] = {
    "biz_id": TransferOptionCase(2, 3),
    "app_id": TransferOptionCase(None, 8),
    "path_prefixes": TransferOptionCase(["/etc"], ["/var"]),
    "folder_prefixes": TransferOptionCase([], ["/srv"]),
    "users": TransferOptionCase(["root"], ["app"]),
    "hosts": TransferOptionCase(["o*"], ["agent-1"]),
}
PERMISSIONS: dict[str, TransferOptionCase] = {"items": TransferOptionCase([OPENED], [OPENED | {"biz_id": 9}])}
CASES: list[tuple[type[Request], Mapping[str, TransferOptionCase]]] = [
    (SingleTargetTransferRequest, FILE | TARGET),
    (CreateTransfersRequest, FILE | TARGETS),
    (TargetRequest, TARGET),
    (JobTargetsQuery, OF_A_JOB),
    (TransferJobsQuery, OF_A_LIST),
    (HostTargetsQuery, OF_A_HOST),
    (RetryTransferJobRequest, RETRY),
    (TransferPermissionRequest, PERMISSION),
    (SetTransferPermissionsRequest, PERMISSIONS),
]
NAMES: tuple[type[Request], ...] = (TransferTaskPath, TransferJobPath)
"""Requests that only name what they are about."""


@dataclass
class TransferOptions:
    """Transfers, and requests whose hosts are their own, so that many run side by side."""

    transfers: Transfers
    asked: int = 0

    async def bring(self, changes: Mapping[str, Any]) -> Any:
        """Ask for one target; what comes of it, without what differs each time."""
        prefix = self._next_prefix()
        body = self._body(prefix) | {"target_agent_id": "agent-1", "target_container_id": ""} | dict(changes)
        reply = await self.transfers.ask("POST", "/v1/transfers", json=_add_prefix(body, prefix))
        if reply.status != 202:
            return {"refused": reply.code}
        return await self._look(reply.body["task_id"], prefix)

    async def bring_many(self, changes: Mapping[str, Any]) -> Any:
        """Ask for many targets; what comes of each."""
        prefix = self._next_prefix()
        body = self._body(prefix) | {"targets": [{"target_agent_id": "agent-1"}]} | dict(changes)
        body["targets"] = [_add_prefix(target, prefix) for target in body["targets"]]
        reply = await self.transfers.ask("POST", "/v1/transfers:batch", json=body)
        if reply.status != 202:
            return {"refused": reply.code}
        return [await self._look(task["task_id"], prefix) for task in reply.body["tasks"]]

    def _next_prefix(self) -> str:
        self.asked += 1
        return f"o{self.asked}-"

    def _body(self, prefix: str) -> dict[str, Any]:
        """A request whose folder is its own, so that others do not join its targets."""
        return self.transfers.build_request(CONTENTS[0], target_file_dir=f"/data/{prefix}")

    async def _look(self, task_id: str, prefix: str) -> dict[str, Any]:
        """Return the response, what GSE was sent, and what lies on the host."""
        end = await self.transfers.wait_for_end(task_id)
        job_id = job_of(end)
        task = self.transfers.world.tasks[end["gse_task_id"]]
        target = task.targets[end["target_agent_id"], end["target_container_id"]]
        content = self.transfers.disks.path(target.spot).read_bytes()
        found = {
            "file": job_id.rpartition(":")[0],
            "response": [end[name] for name in ("status", "target_agent_id", "target_container_id", "file_name")],
            "sent": [target.spot.agent, target.spot.container, target.spot.folder, target.spot.name],
            "user": task.users[target.spot.agent, target.spot.container],
            "content": hashlib.sha256(content).hexdigest(),
        }
        return {name: str(value).replace(prefix, "") for name, value in found.items()}

    async def page(self, path: str, query: Mapping[str, Any]) -> Any:
        """One page of a list, or of a job's targets."""
        sent = {name: value for name, value in query.items() if value is not None}
        if sent.get("cursor") == NEXT:
            before = await self.page(path, {**sent, "cursor": None})
            sent["cursor"] = before["next_cursor"]
        reply = await self.transfers.ask("GET", path, params=sent)
        assert reply.status == 200, reply.body
        page: dict[str, Any] = reply.body
        return page


def _add_prefix(target: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {**target, "target_agent_id": prefix + target["target_agent_id"]}


@pytest.fixture
async def options(settings: Settings) -> AsyncIterator[TransferOptions]:
    """API, worker and GSE; a repository that has both contents for every project."""
    template = "store:transfers/{signature}"
    async with running_transfers(settings, MIXED, repository=template, window_seconds=2) as transfers:
        for content in (*CONTENTS, CONTENT):
            await transfers.worker.services.objects.put(f"transfers/{sha256(content)}", content)
        yield TransferOptions(transfers)


@pytest.mark.parametrize(("model", "cases"), CASES, ids=[model.__name__ for model, _ in CASES])
def test_every_field_has_a_case(model: type[Request], cases: Mapping[str, TransferOptionCase]) -> None:
    """A field without a case may have no effect."""
    assert set(model.model_fields) == set(cases)


def test_every_request_is_here() -> None:
    """One that is added to the routes of transfers has its cases, or only names what it is about."""
    modules = [
        importlib.import_module(f"{api.transfers.__name__}.{each.name}")
        for each in pkgutil.iter_modules(api.transfers.__path__)
    ]
    own = {
        model
        for module in modules
        for _, model in inspect.getmembers(module, inspect.isclass)
        if issubclass(model, Request) and model.__module__ == module.__name__
    }
    assert own - {TransferFileRequest} == {model for model, _ in CASES} | set(NAMES)
    assert issubclass(SingleTargetTransferRequest, TransferFileRequest), (
        "what is common to two of them is no request of its own"
    )
    assert [set(model.model_fields) for model in NAMES] == [{"task_id"}, {"job_id"}]


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_wish_makes_a_difference(options: TransferOptions) -> None:
    """With the other value of a field a request has another outcome; the same request twice has one, for comparison."""
    wanted = [
        (options.bring, f"SingleTargetTransferRequest.{name}", name, case) for name, case in (FILE | TARGET).items()
    ]
    wanted += [
        (options.bring_many, f"CreateTransfersRequest.{name}", name, case) for name, case in (FILE | TARGETS).items()
    ]
    outcomes = await asyncio.gather(
        *(ask({**case.beside, name: value}) for ask, _, name, case in wanted for value in (case.one, case.other))
    )
    pairs = zip(outcomes[::2], outcomes[1::2], strict=True)
    unheeded = [shown for (_, shown, _, _), (one, other) in zip(wanted, pairs, strict=True) if one == other]
    assert unheeded == []
    assert not any("refused" in outcome for outcome in outcomes)
    for ask in (options.bring, options.bring_many):
        first, again = await asyncio.gather(ask({}), ask({}))
        assert first == again


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_question_makes_a_difference(options: TransferOptions) -> None:
    """Which targets of a job or a host, which jobs of a list, and which failures are sent again."""
    transfers = options.transfers
    agents = ["fine-1", "fine-2", "nouser", "large"]
    ends = [
        await transfers.wait_for_end((await transfers.join_many(agents, file_name="first.conf"))[0]),
        await transfers.wait_for_end((await transfers.join_many(agents[:2], file_name="second.conf"))[0]),
    ]
    first, second = map(job_of, ends)
    await asyncio.gather(*map(transfers.wait_for_job_end, (first, second)))
    closing = dict(zip((FIRST_CLOSES, SECOND_CLOSES), (end["window_closes_at"] for end in ends), strict=True))
    unheeded = []
    for path, cases in (
        (f"/v1/transfers/jobs/{quote(first)}", OF_A_JOB),
        ("/v1/transfers/jobs", OF_A_LIST),
        ("/v1/transfers/targets", OF_A_HOST),
    ):
        for name, case in cases.items():
            one, other = [
                await options.page(path, {**case.beside, name: closing.get(value, value)})
                for value in (case.one, case.other)
            ]
            unheeded += [f"{path} {name}"] if one == other else []
    assert unheeded == []
    retry = f"/v1/transfers/jobs/{quote(first)}/retry"
    statuses = [
        (await transfers.ask("POST", retry, json={"reason": reason})).status
        for reason in (RETRY["reason"].one, RETRY["reason"].other)
    ]
    assert statuses == [409, 202]


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_permission_makes_a_difference(options: TransferOptions) -> None:
    """With one value a project may send a file, with the other it may not."""
    transfers = options.transfers
    path = f"/v1/projects/{transfers.project_id}/transfer-permissions"
    sets = [[[OPENED | {name: value}] for value in (case.one, case.other)] for name, case in PERMISSION.items()]
    sets += [[case.one, case.other] for case in PERMISSIONS.values()]
    codes = []
    for number, pair in enumerate(sets):
        for permissions in pair:
            set_ = await transfers.api_client.as_admin("PUT", path, json={"items": permissions})
            assert set_.status == 200, set_.body
            body = transfers.build_request() | {"target_agent_id": f"o{number}"}
            codes.append((await transfers.ask("POST", "/v1/transfers", json=body)).status)
    assert codes == [202, 403] * len(sets)
