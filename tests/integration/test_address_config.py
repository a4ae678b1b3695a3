"""The configuration of addresses through the API: versioned, checked, and in force for the next cycle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from domain.addresses import names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra import temporal
from infra.settings import Settings
from services import services
from sims.oss.scenario import OssAction, OssRule, OssScenario
from sims.oss.server import running_oss
from tests.support.addresses import SIGNED, Addresses, running_addresses
from tests.support.waiting import eventually
from workflows import systems
from workflows.addresses import handle

pytestmark = pytest.mark.stack


@pytest.fixture
async def installation(settings: Settings, tmp_path: Path) -> AsyncIterator[Addresses]:
    """API, worker and modules."""
    async with running_addresses(settings, tmp_path, minimum_share=0.0) as running:
        yield running


async def send(installation: Addresses, method: str, **options: Any) -> dict[str, Any]:
    """A change that is accepted."""
    reply = await installation.ask(method, "config", json=SIGNED | {"options": options})
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = reply.body
    return answer


async def interval(name: str) -> timedelta:
    """How often a schedule looks."""
    schedule = await (await temporal.connect()).get_schedule_handle(name).describe()
    return schedule.schedule.spec.intervals[0].every


async def test_the_environment_is_version_0(installation: Addresses) -> None:
    """Before any option is set; no response contains a token."""
    shown = await installation.ask("GET", "config")

    assert (shown.body["version"], shown.body["effective"]["threshold"]) == (0, 10_000)
    im = shown.body["effective"]["modules"]["im"]
    assert (im["base_url"], im["batch"]) == (f"{installation.modules.base}/im", 500)
    assert (await installation.ask("GET", "config/versions")).body["items"] == []


async def test_versions_are_kept_with_who_set_them(installation: Addresses) -> None:
    """PUT sets all, PATCH some, null takes away, and the same again is no version."""
    first = await send(installation, "PUT", threshold=7, modules={"ed": {"batch": 3}})
    same = await send(installation, "PUT", threshold=7, modules={"ed": {"batch": 3}})
    second = await send(installation, "PATCH", failed_cycles_max=4, modules={"ed": {"concurrency": 2}})
    third = await send(installation, "PATCH", threshold=None)
    fourth = await send(installation, "PUT")

    assert first["version"] == same["version"] < second["version"] < third["version"] < fourth["version"]
    ed = second["effective"]["modules"]["ed"]
    assert (second["effective"]["threshold"], second["effective"]["failed_cycles_max"]) == (7, 4)
    assert (ed["batch"], ed["concurrency"]) == (3, 2)
    assert (third["effective"]["threshold"], third["effective"]["failed_cycles_max"]) == (10_000, 4)
    assert fourth["effective"] == (await installation.ask("GET", "config")).body["effective"]
    listed = (await installation.ask("GET", "config/versions")).body["items"]
    assert [each["version"] for each in listed] == [each["version"] for each in (fourth, third, second, first)]
    assert {(each["who"], each["reason"]) for each in listed} == {(SIGNED["who"], SIGNED["reason"])}
    assert (listed[3]["options"]["threshold"], listed[3]["options"]["modules"]["ed"]["batch"]) == (7, 3)
    page = (await installation.ask("GET", "config/versions", params={"limit": "3"})).body
    rest = await installation.ask("GET", "config/versions", params={"cursor": page["next_cursor"]})
    assert [each["version"] for each in rest.body["items"]] == [first["version"]]


async def test_changes_at_the_same_time_are_all_kept(installation: Addresses) -> None:
    """Each is made to what the one before left."""
    await asyncio.gather(
        *(
            send(installation, "PATCH", **{name: 3})
            for name in ("threshold", "failed_cycles_max", "step_concurrency", "group_messages_max")
        )
    )

    own = (await installation.ask("GET", "config")).body["own"]
    assert [own[name] for name in ("threshold", "failed_cycles_max", "step_concurrency", "group_messages_max")] == [
        3
    ] * 4


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        ({"threshold": 0}, "invalid_request", "threshold"),
        ({"modules": {"xx": {}}}, "invalid_request", "xx"),
        ({"kept_days": 40}, "invalid_request", "kept_days"),
        ({"modules": {"im": {"base_url": "ftp://im"}}}, "invalid_request", "base_url"),
        ({"modules": {"im": {"base_url": "http://169.254.169.254/haulage"}}}, "config_invalid", "169.254.169.254"),
        ({"modules": {"im": {"credentials": "nobody"}}}, "config_invalid", "nobody.json"),
    ],
)
async def test_what_cannot_work_is_refused(installation: Addresses, options: Any, code: str, what: str) -> None:
    """With a sentence, and nothing has changed."""
    reply = await installation.ask("PATCH", "config", json=SIGNED | {"options": options})

    assert (reply.status, reply.code) == (422, code)
    assert what in str(reply.body)
    assert (await installation.ask("GET", "config")).body["version"] == 0


async def test_credentials_are_refused_where_there_is_no_folder_of_them(settings: Settings, tmp_path: Path) -> None:
    """A missing file is reported now, not when each call of the module fails."""
    async with running_addresses(settings, tmp_path, credentials_folder=tmp_path / "nowhere") as installation:
        options = {"modules": {"im": {"credentials": "im"}}}
        reply = await installation.ask("PATCH", "config", json=SIGNED | {"options": options})

    assert (reply.status, reply.code) == (422, "config_invalid")
    assert "im.json" in reply.body["errors"][0]["message"] + reply.body["detail"]


async def test_nobody_changes_anything_without_a_name(installation: Addresses) -> None:
    """Operators share one key."""
    bodies: list[dict[str, Any]] = [{"options": {}}, {"options": {}, "who": " ", "reason": "because"}]
    for body in bodies:
        assert (await installation.ask("PUT", "config", json=body)).status == 422
    _, key = await installation.api_client.make_project()
    assert (await installation.api_client.ask("GET", "/v1/addresses/config", key=key)).status == 403


async def test_the_next_cycle_goes_by_a_change(installation: Addresses) -> None:
    """Threshold and batches of one, without a restart of the worker."""
    await send(installation, "PUT", threshold=2, modules={"im": {"batch": 1}})
    ids = [await installation.publish(Topic.CREATE_UPDATE, uprn=n, address_id=n, record={"n": n}) for n in (1, 2, 3)]
    await installation.resume()
    rows = [await installation.wait_until_applied(id_) for id_ in ids]

    assert len({row["cycle_id"] for row in rows}) == 2
    writes = {
        name: [each for each in module.calls if each.op_ids] for name, module in installation.modules.modules.items()
    }
    assert sorted(len(each.op_ids) for each in writes["im"] if each.method == "PUT") == [1, 1, 1]
    assert sorted(len(each.op_ids) for each in writes["ed"] if each.method == "POST") == [1, 2]


async def test_a_cycle_that_has_begun_ends_as_it_began(installation: Addresses) -> None:
    """A change that comes in the middle is for the next one, also where steps of this one have not begun."""
    late = OssRule(action=OssAction.LATE, modules=frozenset({"ed"}), seconds=15, times=1)
    installation.modules.set(OssScenario(rules=(late,)))
    await send(installation, "PUT", group_messages_max=1, step_concurrency=1, modules={"ed": {"batch": 1}})
    ids = [await installation.publish(Topic.CREATE_UPDATE, uprn=n, address_id=n, record={}) for n in (1, 2)]
    await installation.resume()
    # What a module is asked before, such as which operations it can do, is no sign that a cycle has begun.
    await eventually(lambda: any(call.op_ids for call in installation.modules.modules["im"].calls))
    await send(installation, "PATCH", modules={"ed": {"batch": 500}})
    assert (await installation.row(ids[1]))["proc_flag"] == "P", "the change has to come in the middle of a cycle"
    installation.modules.set(OssScenario())
    ids.append(await installation.publish(Topic.CREATE_UPDATE, uprn=3, address_id=3, record={}))
    rows = [await installation.wait_until_applied(id_) for id_ in ids]

    assert rows[0]["cycle_id"] == rows[1]["cycle_id"] != rows[2]["cycle_id"]
    sent = {call.op_ids: call.method for call in installation.modules.modules["ed"].calls if call.op_ids}
    assert [sent[(str(id_),)] for id_ in ids] == ["PUT", "PUT", "POST"]


async def test_retries_that_are_set_decide_when_a_message_is_given_up(installation: Addresses) -> None:
    """For cycles, for lists and for figures alike."""
    installation.modules.set(OssScenario(rules=(OssRule(action=OssAction.FAIL, modules=frozenset({"wfm"})),)))
    await send(installation, "PUT", failed_cycles_max=1)
    id_ = await installation.publish(Topic.CREATE_UPDATE, uprn=1, address_id=1, record={})
    await installation.resume()

    async def given_up() -> bool:
        return bool((await installation.ask("GET", f"messages/{id_}")).body["state"] == "given_up")

    await eventually(given_up)
    assert (await installation.row(id_))["retry_times"] == 1
    listed = await installation.ask("GET", "messages", params={"state": "given_up"})
    assert [each["message_id"] for each in listed.body["items"]] == [id_]
    await send(installation, "PUT", failed_cycles_max=1_000)
    assert (await installation.ask("GET", f"messages/{id_}")).body["state"] != "given_up"


async def test_the_schedules_follow(installation: Addresses) -> None:
    """At once, and also after the installation was prepared anew by an environment that says otherwise."""
    await send(installation, "PUT", pause_seconds=77, check_hours=5)
    assert (await interval(names.CYCLE_SCHEDULE), await interval(names.CHECK_SCHEDULE)) == (
        timedelta(seconds=77),
        timedelta(hours=5),
    )

    await services.prepare_installation(installation.api_client.settings, systems.create_or_update_schedules)

    assert await interval(names.CYCLE_SCHEDULE) == timedelta(seconds=77)


async def test_a_module_may_move(settings: Settings, tmp_path: Path) -> None:
    """To where the guard lets an operator lead us; a comparison reads it there, too."""
    (tmp_path / "other").mkdir()
    async with running_oss(tmp_path / "other") as other:
        guard = settings.guard.model_copy(update={"allow": [other.base.removeprefix("http://")]})
        async with running_addresses(settings.model_copy(update={"guard": guard}), tmp_path) as installation:
            await send(installation, "PUT", modules={"im": {"base_url": f"{other.base}/im"}})
            id_ = await installation.publish(Topic.CREATE_UPDATE, uprn=1, address_id=1, record={"a": 1})
            await installation.resume()
            await installation.wait_until_applied(id_)
            report = (await installation.ask("POST", "comparisons")).body["comparison_id"]

            async def find_comparison() -> Any:
                return (await installation.ask("GET", f"comparisons/{report}")).body["found"]

            found = await eventually(find_comparison)

        assert other.modules["im"].live().keys() == {1}
        assert installation.states(Module.IM) == {}
        assert installation.states(Module.OD) == {1: (1, {"a": 1})}
        assert found["different"] == 0


async def test_of_two_changes_at_a_time_the_schedules_follow_the_later(
    installation: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the earlier one comes to the engine last."""
    update, later = handle.update_schedule_intervals, [13.0]

    async def update_after_another_change(engine: Client, pause_seconds: float, check_hours: float) -> None:
        if later:
            await send(installation, "PATCH", pause_seconds=later.pop())
        await update(engine, pause_seconds, check_hours)

    monkeypatch.setattr(handle, "update_schedule_intervals", update_after_another_change)
    await send(installation, "PATCH", pause_seconds=11.0)

    assert await interval(names.CYCLE_SCHEDULE) == timedelta(seconds=13)
