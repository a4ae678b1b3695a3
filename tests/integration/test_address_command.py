"""`haulage addresses` as people and scripts type it: what it prints, and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from domain.addresses import names
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssRule, OssScenario
from tests.support.addresses import Addresses, running_addresses
from tests.support.pubsub import PROJECT, Intake, running_intake
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
CHANGE = '{"uprn": 7, "address_id": 70, "record": {"street": "Main Street"}}'


@dataclass(frozen=True)
class Terminal:
    """A terminal on the machine of an installation."""

    addresses: Addresses
    intake: Intake

    async def type(self, *arguments: str) -> tuple[int | None, str, str]:
        """Type a command; return the exit code, and what it printed on both outputs."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
        variables = {
            "HAULAGE_API_URL": self.addresses.api_client.address,
            "HAULAGE_API_KEY": self.addresses.api_client.settings.api.admin_key.get_secret_value(),
            "HAULAGE_ADDRESSES__PUBSUB__PROJECT": PROJECT,
            "HAULAGE_ADDRESSES__PUBSUB__BASE_URL": self.intake.sim.base,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", "addresses", *arguments),
            cwd=ROOT,
            env={**clean, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def terminal(settings: Settings, tmp_path: Path) -> AsyncIterator[Terminal]:
    """API, worker and modules, and a Pub/Sub that the worker pulls from."""
    async with running_intake(settings) as intake:
        pubsub = intake.settings.addresses.pubsub
        async with (
            running_addresses(settings, tmp_path, failed_cycles_max=2, pubsub=pubsub) as addresses,
            running_worker(intake.settings, [names.INTAKE_QUEUE]),
        ):
            await addresses.resume()
            yield Terminal(addresses, intake)


@pytest.mark.long
async def test_what_is_published_is_followed_into_all_modules(terminal: Terminal) -> None:
    """A message that a module fails is given up, is listed with the reason, and is done after a retry."""
    terminal.addresses.modules.set(OssScenario(rules=(OssRule(action=OssAction.FAIL, modules=frozenset({"od"})),)))

    code, out, err = await terminal.type("publish", "createUpdate", CHANGE)
    assert (code, out) == (1, ""), err
    assert "haulage: 0 of 1 messages are done, 1 given up, 0 in quarantine." in err
    code, out, err = await terminal.type("list", "--state", "given_up", "--json")
    [found] = json.loads(out)["messages"]
    assert (code, found["uprn_1"], found["waits"]["module"]) == (0, 7, "od"), err
    terminal.addresses.modules.set(OssScenario())
    code, out, err = await terminal.type(
        "retry", str(found["message_id"]), "--reason", "OD works again", "--who", "ann"
    )
    assert (code, out) == (0, "1 retried, 0 given up\n"), err
    code, out, err = await terminal.type("show", str(found["message_id"]))

    assert code == 0, err
    assert ("od: has it" in out, "retry by ann: OD works again" in out) == (True, True)
    assert await terminal.type("compare") == (0, "The four modules are equal in all 1 UPRNs.\n", "")


@pytest.mark.long
async def test_what_cannot_be_carried_out_is_refused(terminal: Terminal) -> None:
    """With a sentence and exit code 2; nothing is published."""
    for arguments, sentence in (
        (("publish", "other", CHANGE), "'other' is no topic"),
        (("publish", "delete", "no json"), "no json is no JSON"),
        (("publish", "delete"), "There is no message"),
        (("list", "--state", "lost"), "given_up"),
        (("show", "4711"), "There is no message 4711"),
        (
            ("discard", "999", "--reason", "a mistake"),
            "There is no message to discard by 1 of these ids",
        ),
    ):
        code, out, err = await terminal.type(*arguments)
        assert (code, out) == (2, ""), err
        assert sentence in err
    assert (await terminal.addresses.ask("GET", "figures")).body["quarantined"] == 0


@pytest.mark.long
async def test_cycles_are_paused_and_resumed(terminal: Terminal) -> None:
    """What is published meanwhile waits, and `status` says so."""
    assert (await terminal.type("pause", "--reason", "a test"))[0] == 0
    code, out, err = await terminal.type("publish", "createUpdate", CHANGE, "--no-wait", "--json")
    assert (code, len(json.loads(out)["published"])) == (0, 1), err
    assert (await terminal.type("status"))[1].startswith("cycles: paused\n")
    assert (await terminal.type("resume", "--reason", "a test"))[0] == 0
