"""Permissions through the API: a project sends only what the operator permits; a biz and app are one project's."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote

import pytest

from api.transfers import actions
from api.transfers.context import TransferPermissionsCache
from api.transfers.responses import RetryTransferJobResponse
from domain.transfers.models import ALL_LEFT_OUT
from domain.transfers.permissions import TransferPermission
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseRule
from tests.support.api import ApiClient, Reply, running_api
from tests.support.transfers import QUICK, Transfers, job_of, running_transfers
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

OPENED = {
    "biz_id": 2,
    "app_id": 7,
    "path_prefixes": ["/etc"],
    "folder_prefixes": ["/data"],
    "users": ["root"],
    "hosts": ["agent-*", "0:10.0.0.2"],
}
ANYTHING: dict[str, Any] = {"app_id": None, "path_prefixes": [], "folder_prefixes": [], "users": [], "hosts": []}


async def open_for(api_client: ApiClient, project_id: str, *permissions: dict[str, Any]) -> Reply:
    """Set what is opened for a project, as the operator."""
    path = f"/v1/projects/{project_id}/transfer-permissions"
    return await api_client.as_admin("PUT", path, json={"items": list(permissions)})


async def ask(transfers: Transfers, *agent_ids: str, **fields: Any) -> Reply:
    """Ask for a file for one target, or for several in a batch."""
    body = transfers.build_request(**fields)
    if len(agent_ids) == 1:
        return await transfers.ask("POST", "/v1/transfers", json=body | {"target_agent_id": agent_ids[0]})
    targets = [{"target_agent_id": agent_id} for agent_id in agent_ids]
    return await transfers.ask("POST", "/v1/transfers:batch", json=body | {"targets": targets})


async def test_a_project_sends_only_what_is_opened_for_it(settings: Settings) -> None:
    """What is opened arrives; all else is refused with what is not permitted, and nothing of it is sent."""
    async with running_transfers(settings) as transfers:
        assert (await open_for(transfers.api_client, transfers.project_id, OPENED)).status == 200
        refusals = {
            "Biz 3 with app 7": await ask(transfers, "agent-1", biz_id=3),
            "Biz 2 with app 8": await ask(transfers, "agent-1", app_id=8),
            "The path '/etcetera/app.conf'": await ask(transfers, "agent-1", file_path="/etcetera/app.conf"),
            "The folder '/database'": await ask(transfers, "agent-1", target_file_dir="/database"),
            "The user 'app'": await ask(transfers, "agent-1", target_user="app"),
            "The host '0:10.0.0.21'": await ask(transfers, "0:10.0.0.21"),
            "The hosts 'x', 'y', 'z' and 1 more": await ask(transfers, "agent-1", "x", "y", "agent-2", "z", "w"),
        }
        ended = await transfers.wait_for_end(await transfers.join("agent-3", file_path="//etc//app.conf"))
        others = [await transfers.wait_for_end(each) for each in await transfers.join_many(["agent-4", "0:10.0.0.2"])]

    for what, refused in refusals.items():
        assert (refused.status, refused.code) == (403, "transfer_not_permitted"), what
        assert refused.body["detail"].startswith(what)
        assert "PUT /v1/projects/{project_id}/transfer-permissions" in refused.body["detail"]
    assert [each["status"] for each in (ended, *others)] == ["Success"] * 3
    assert set(transfers.sends) == {("agent-3", ""), ("agent-4", ""), ("0:10.0.0.2", "")}


async def test_everything_is_opened_until_something_is(settings: Settings) -> None:
    """The first permission of any project shuts all others out; the last one that is taken back lets them in again."""
    async with running_transfers(settings, window_seconds=30) as transfers:
        api_client = transfers.api_client
        other, _ = await api_client.make_project()
        path = f"/v1/projects/{transfers.project_id}/transfer-permissions"
        before = (await ask(transfers, "agent-1")).status, (await transfers.ask("GET", path)).body
        await open_for(api_client, other, ANYTHING | {"biz_id": 9})
        during = (await ask(transfers, "agent-1")).status, (await transfers.ask("GET", path)).body
        await open_for(api_client, other)
        after = (await ask(transfers, "agent-1")).status, (await transfers.ask("GET", path)).body

    free = {"project_id": transfers.project_id, "is_restricted": False, "items": []}
    assert before == after == (202, free)
    assert during == (403, {**free, "is_restricted": True})


async def test_other_processes_follow_within_a_moment(settings: Settings) -> None:
    """Each keeps what it has read for a second."""
    async with running_transfers(settings, window_seconds=30) as transfers, running_api(settings) as second:
        assert (await ask(transfers, "agent-1")).status == 202
        await open_for(second, transfers.project_id, OPENED | {"hosts": ["agent-2"]})

        async def is_refused() -> bool:
            return (await ask(transfers, "agent-1")).status == 403

        await eventually(is_refused)
        assert (await ask(transfers, "agent-2")).status == 202


async def test_joins_hardly_read_what_is_opened(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, however many come."""
    reads: list[str] = []
    read = TransferPermissionsCache.load_permissions_or_none_if_unrestricted

    async def count(cache: TransferPermissionsCache, project_id: str) -> list[TransferPermission] | None:
        reads.append(project_id)
        return await read(cache, project_id)

    monkeypatch.setattr(TransferPermissionsCache, "load_permissions_or_none_if_unrestricted", count)
    async with running_transfers(settings, window_seconds=30) as transfers:
        await open_for(transfers.api_client, transfers.project_id, OPENED)
        begun = time.monotonic()
        replies = await asyncio.gather(*(ask(transfers, f"agent-{n}") for n in range(300)))
        seconds = time.monotonic() - begun

    assert {reply.status for reply in replies} <= {202, 503}
    # Who comes while it is read waits for the next read: two for each second, at most.
    assert 1 <= len(reads) <= 2 * (1 + seconds)


async def test_a_biz_and_app_are_bound_to_one_project(settings: Settings) -> None:
    """A request for another project is refused with the owner's name, and changes nothing."""
    async with running_api(settings) as api_client:
        first, _ = await api_client.make_project()
        second, key = await api_client.make_project()
        await open_for(api_client, first, OPENED)
        refused = [
            await open_for(api_client, second, ANYTHING | {"biz_id": 1}, permission)
            for permission in (OPENED, OPENED | {"path_prefixes": ["/opt"]}, ANYTHING | {"biz_id": 2})
        ]
        path = f"/v1/projects/{second}/transfer-permissions"
        unset = await api_client.ask("GET", path, key=key)
        beside = await open_for(api_client, second, OPENED | {"app_id": 8})
        again = await open_for(api_client, first, OPENED, OPENED | {"path_prefixes": ["/opt"]})
        await open_for(api_client, first)
        taken_over = await open_for(api_client, second, ANYTHING | {"biz_id": 2})

    assert [(each.status, each.code) for each in refused] == [(409, "transfer_permission_taken")] * 3
    assert all(f"Biz 2 with app 7 is bound to the project {first}." in each.body["detail"] for each in refused)
    assert unset.body["items"] == []
    assert (beside.status, again.status, taken_over.status) == (200, 200, 200)
    assert taken_over.body["items"] == [ANYTHING | {"biz_id": 2}]


async def test_of_two_who_open_one_pair_at_once_one_gets_it(settings: Settings) -> None:
    """However many ask at the same time, for as many projects."""
    async with running_api(settings) as api_client:
        projects = [(await api_client.make_project())[0] for _ in range(6)]
        replies = await asyncio.gather(*(open_for(api_client, each, OPENED) for each in projects))
        shown = [
            (await api_client.as_admin("GET", f"/v1/projects/{each}/transfer-permissions")).body for each in projects
        ]

    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409, 409]
    assert [bool(each["items"]) for each in shown].count(True) == 1


async def test_permissions_are_set_by_the_operator_and_read_by_their_project(settings: Settings) -> None:
    """They are returned as they are compared; the operator alone sets them, and a project reads its own."""
    async with running_api(settings) as api_client:
        project_id, key = await api_client.make_project()
        _, foreign = await api_client.make_project()
        path = f"/v1/projects/{project_id}/transfer-permissions"
        set_ = await open_for(api_client, project_id, OPENED | {"path_prefixes": ["etc//app/"]})
        read = await api_client.ask("GET", path, key=key)
        by_owner = await api_client.ask("PUT", path, key=key, json={"items": []})
        by_other = await api_client.ask("GET", path, key=foreign)
        no_project = await open_for(api_client, "prj_" + "0" * 16, OPENED)

    assert read.body == set_.body
    assert read.body["items"] == [OPENED | {"path_prefixes": ["/etc/app"]}]
    assert [each.status for each in (by_owner, by_other, no_project)] == [403, 404, 404]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"hosts": ["ag*nt"]}, "before its end"),
        ({"path_prefixes": ["/etc/../root"]}, "a step `.` or `..`"),
        ({"folder_prefixes": ["data"]}, "not absolute"),
        ({"biz_id": -1}, "biz_id"),
        ({"hots": ["agent-1"]}, "hots"),
    ],
)
async def test_a_permission_that_could_not_be_kept_is_refused(
    settings: Settings, fields: dict[str, Any], sentence: str
) -> None:
    """With what is wrong with it, and nothing is set."""
    async with running_api(settings) as api_client:
        project_id, key = await api_client.make_project()
        refused = await open_for(api_client, project_id, OPENED | fields)
        read = await api_client.ask("GET", f"/v1/projects/{project_id}/transfer-permissions", key=key)

    assert refused.status == 422
    assert sentence in refused.body["detail"]
    assert read.body["items"] == []


async def test_what_is_no_longer_opened_is_not_sent_again(settings: Settings) -> None:
    """A retry is checked as a new transfer is: by the hosts, the user and the folder of the targets that failed."""
    broken = QUICK.model_copy(update={"rules": (GseRule(action=GseAction.FAIL, code=122),)})
    async with running_transfers(settings, broken) as transfers:
        await open_for(transfers.api_client, transfers.project_id, OPENED)
        job_id = job_of(await transfers.wait_for_end(await transfers.join("agent-1")))
        await transfers.wait_for_job_end(job_id)
        path = f"/v1/transfers/jobs/{quote(job_id)}/retry"
        await open_for(transfers.api_client, transfers.project_id, OPENED | {"hosts": ["agent-2"]})
        refused = await transfers.ask("POST", path, json={})
        await open_for(transfers.api_client, transfers.project_id, OPENED)
        retried = await transfers.ask("POST", path, json={})

    assert (refused.status, refused.code) == (403, "transfer_not_permitted")
    assert "'agent-1'" in refused.body["detail"]
    assert retried.status == 202


@pytest.mark.parametrize(("host", "sent"), [("agent-2", 1), ("agent-3", 0)])
async def test_what_is_taken_back_while_a_retry_begins_is_left_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, host: str, sent: int
) -> None:
    """It stays failed in its job, where a further retry is refused; what is still opened is sent again.

    If nothing is, the retry has failed and says why. Only what is sent counts for the quota of the day.
    """
    broken = QUICK.model_copy(update={"rules": (GseRule(action=GseAction.FAIL, code=122),)})
    start = actions._start_retry_under_free_number
    async with running_transfers(settings, broken) as transfers:

        async def take_back_and_start(*arguments: Any) -> RetryTransferJobResponse:
            await open_for(transfers.api_client, transfers.project_id, OPENED | {"hosts": [host]})
            return await start(*arguments)

        async def is_counted() -> bool:
            quotas = (await transfers.ask("GET", "/v1/quotas")).body["items"]
            used = {quota["name"]: quota["used"] for quota in quotas}
            return bool(used["transfer_targets_per_day"] == 2 + sent)

        await open_for(transfers.api_client, transfers.project_id, OPENED)
        job_id = job_of(await transfers.wait_for_end((await transfers.join_many(["agent-1", "agent-2"]))[0]))
        await transfers.wait_for_job_end(job_id)
        path = f"/v1/transfers/jobs/{quote(job_id)}/retry"
        monkeypatch.setattr(actions, "_start_retry_under_free_number", take_back_and_start)
        retried = await transfers.ask("POST", path, json={})
        ended = await transfers.wait_for_job_end(retried.body["job_id"])
        refused = await transfers.ask("POST", path, json={})
        await eventually(is_counted)

    assert (ended["status"], ended["counts"]["Failed"], sum(ended["counts"].values())) == ("Failed", sent, sent)
    assert [(each["count"], each["meaning"] == ALL_LEFT_OUT) for each in ended["failures_by_reason"]] == [
        (sent, not sent)
    ]
    assert (refused.status, refused.code) == (403, "transfer_not_permitted")
    assert "'agent-1'" in refused.body["detail"]
