"""A pause of addresses says who and why wherever something waits for it, and what waited goes on at once after it.

Cycles would run by themselves only once an hour here: what goes on, does so because of the resume.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.addresses import names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.settings import Settings
from tests.support.addresses import SIGNED, Addresses, running_addresses
from tests.support.command import start_command, wait_for_exit
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

HOUR = 3_600.0
RECORD = {"street": "Main"}


@pytest.fixture
async def addresses(settings: Settings, tmp_path: Path) -> AsyncIterator[Addresses]:
    """API, worker and modules; cycles run when something triggers them."""
    async with running_addresses(settings, tmp_path, pause_seconds=HOUR) as running:
        yield running


async def set_module_paused(addresses: Addresses, *, paused: bool) -> None:
    """Pause or resume the module im."""
    options = {"modules": {"im": {"paused": paused}}}
    reply = await addresses.ask("PATCH", "config", json={**SIGNED, "options": options})
    assert reply.status == 200, reply.body


async def read_overview(addresses: Addresses) -> dict[str, Any]:
    """Return what the overview shows of addresses."""
    overview = (await addresses.api_client.as_admin("GET", "/v1/overview")).body
    [shown] = [each for each in overview["systems"] if each["system"] == "addresses"]
    found: dict[str, Any] = shown
    return found


async def test_a_message_waits_for_a_paused_module_and_is_applied_once_it_is_resumed(addresses: Addresses) -> None:
    """It waits, and has not failed; its answer, the overview and the command line say who paused the module and why."""
    await set_module_paused(addresses, paused=True)
    message = await addresses.publish(Topic.CREATE_UPDATE, uprn=7, address_id=70, record=RECORD)
    await addresses.resume()

    async def read_waiting() -> dict[str, Any] | None:
        found: dict[str, Any] = (await addresses.ask("GET", f"messages/{message}")).body
        return found if found["waits"] else None

    shown = await eventually(read_waiting)
    assert shown is not None
    failed = (await addresses.ask("GET", "messages:count")).body
    listed = (await addresses.ask("GET", "messages", params={"state": "waiting", "kind": "paused"})).body["items"]
    figures = (await addresses.ask("GET", "figures")).body["messages"]
    overview = await eventually(lambda: _read_overview_with_pause(addresses))
    assert overview is not None
    key = addresses.api_client.settings.api.admin_key.get_secret_value()
    env = {"HAULAGE_API_URL": addresses.api_client.address, "HAULAGE_API_KEY": key}
    status = await wait_for_exit(await start_command("addresses", "status", env=env))
    await set_module_paused(addresses, paused=False)
    await addresses.wait_until_applied(message)

    assert (shown["state"], shown["waits"]["kind"], shown["acks"]["im"]["ack"]) == ("waiting", "paused", None)
    [pause] = shown["waits"]["paused"]
    assert {name: pause[name] for name in ("of", "module", *SIGNED)} == {"of": "module", "module": "im", **SIGNED}
    assert [each["message_id"] for each in listed] == [message]
    assert failed == {"messages": 0, "touched": 0, "busy": 0}
    assert {each["state"]: each["messages"] for each in figures if each["messages"]} == {"waiting": 1}
    assert sum(count for each in figures for count in each["failed_in"].values()) == 0
    [concern] = [each for each in overview["concerns"] if each["kind"] == "module_paused"]
    assert (concern["largest_groups"][0]["subject"], concern["largest_groups"][0]["cause"]) == (
        "IM",
        f"{SIGNED['who']}: {SIGNED['reason']}",
    )
    assert (overview["waiting"], overview["failed"]) == (1, 0)
    assert f"Module im is paused since {pause['paused_at'][:19]}" in status.out
    assert f"by {SIGNED['who']}: {SIGNED['reason']}." in status.out
    assert addresses.states(Module.IM) == {7: (70, RECORD)}


async def _read_overview_with_pause(addresses: Addresses) -> dict[str, Any] | None:
    shown = await read_overview(addresses)
    return shown if shown["waiting"] else None


async def test_a_cycle_begins_when_addresses_are_resumed(addresses: Addresses) -> None:
    """What was received meanwhile is not left to the schedule; the cycle says what is paused, by whom and why."""
    pauses = addresses.api_client.as_admin
    await pauses("POST", "/v1/systems/addresses/pause", json=SIGNED)
    await addresses.ask("POST", "cycle/pause", json=SIGNED)
    cycle = (await addresses.ask("GET", "cycle")).body
    message = await addresses.publish(Topic.CREATE_UPDATE, uprn=7, address_id=70, record=RECORD)
    await addresses.resume()
    await eventually(lambda: _has_run(addresses))
    await pauses("POST", "/v1/systems/addresses/resume", json=SIGNED)
    await addresses.wait_until_applied(message)

    assert [each["of"] for each in cycle["pauses"]] == ["system", "cycle"]
    for each in cycle["pauses"]:
        assert (each["who"], each["reason"], each["paused_at"] is None) == (*SIGNED.values(), False)


async def _has_run(addresses: Addresses) -> bool:
    query = f"WorkflowType = '{names.CYCLE_WORKFLOW}' AND ExecutionStatus = 'Completed'"
    return [each async for each in addresses.services.engine.list_workflows(query)] != []
