"""`haulage transfers` as people and scripts type it: what it prints, and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from infra.settings import Settings
from sims.gse.scenario import GseAction, GseRule
from tests.support.command import running_silent_server, start_command, wait_for_exit
from tests.support.transfers import CONTENT, QUICK, Transfers, running_transfers, sha256
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
BROKEN = GseRule(action=GseAction.FAIL, agent="broken", code=104)


@pytest.fixture
async def transfers(settings: Settings) -> AsyncIterator[Transfers]:
    """API, worker and a GSE whose host `broken` fails for good."""
    async with running_transfers(settings, QUICK.model_copy(update={"rules": (BROKEN,)})) as running:
        yield running


async def type_transfer(transfers: Transfers, *arguments: str, key: str | None = None) -> tuple[int | None, str, str]:
    """Type it; return the exit code, and what it printed on both outputs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    address = {"HAULAGE_API_URL": transfers.api_client.address, "HAULAGE_API_KEY": key or transfers.key}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "transfers", *arguments),
        cwd=ROOT,
        env={**clean, **address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def place(biz: int = 2) -> tuple[str, ...]:
    """Return the options that name the file of the tests in the repository."""
    return ("--signature", sha256(CONTENT), "--biz", str(biz), "--app", "7", "--folder", "/data/config")


async def test_every_host_has_the_file(transfers: Transfers, tmp_path: Path) -> None:
    """Hosts are named, or listed in a file, and each is sent to once; without a terminal progress is plain lines."""
    (tmp_path / "wanted.txt").write_text("host-2\nhost-1\n")

    code, out, err = await type_transfer(
        transfers, "send", "/etc/app.conf", "--to", "host-1", "--hosts", str(tmp_path / "wanted.txt"), *place()
    )

    assert code == 0, err
    assert out.startswith("2 of 2 hosts have the file.\njob ")
    assert "transfer: 2 of 2 hosts" in err
    assert [transfers.has_file(f"host-{number}") for number in (1, 2)] == [True, True]


async def test_a_local_file_is_found_by_its_bytes(transfers: Transfers, tmp_path: Path) -> None:
    """The signature is that of the file on this machine."""
    path = tmp_path / "app.conf"
    path.write_bytes(CONTENT)

    code, _, err = await type_transfer(
        transfers, "send", str(path), "--to", "host-1", "--biz", "2", "--app", "7", "--folder", "/data/config"
    )

    assert code == 0, err
    assert transfers.has_file("host-1")


async def test_hosts_that_fail_are_told_and_sent_to_again(transfers: Transfers) -> None:
    """With exit code 1, by cause; `retry` sends to those alone."""
    sent = ("send", "/etc/app.conf", "--to", "host-1", "--to", "broken", *place())
    code, out, _ = await type_transfer(transfers, *sent, "--json")
    assert code == 1
    [job] = json.loads(out)["jobs"]
    assert job["counts"]["Success"] == job["counts"]["Failed"] == 1
    assert [group["code"] for group in job["failures_by_reason"]] == [104]

    code, _, err = await type_transfer(transfers, "show", job["job_id"])
    assert (code, "1 of 2 hosts have the file." in err) == (1, True), err

    transfers.world.set(QUICK)
    code, out, err = await type_transfer(transfers, "retry", job["job_id"])
    assert code == 0, err
    assert out.startswith("1 of 1 hosts have the file.")
    assert transfers.sends["host-1", ""] == 1


@pytest.mark.long
async def test_ctrl_c_leaves_the_transfer_and_says_how_to_go_on(transfers: Transfers) -> None:
    """It goes on at the server; the two commands that are printed follow it and end it."""
    transfers.world.set(QUICK.model_copy(update={"rules": (GseRule(action=GseAction.STUCK),)}))
    address = {"HAULAGE_API_URL": transfers.api_client.address, "HAULAGE_API_KEY": transfers.key}
    process = await start_command("transfers", "send", "/etc/app.conf", "--to", "host-1", *place(), env=address)
    assert process.stderr
    await asyncio.wait_for(process.stderr.readuntil(b"transfer: "), PATIENCE_SECONDS)

    process.send_signal(signal.SIGINT)

    ended = await wait_for_exit(process)
    assert (ended.code, ended.out) == (130, "")
    said = re.search(
        r"haulage: The transfer goes on. `haulage transfers show (\S+)` follows it, "
        r"`haulage transfers cancel (\S+)` ends it.",
        ended.err,
    )
    assert said, ended.err
    assert said[1] == said[2]
    reply = await transfers.ask("GET", f"/v1/transfers/jobs/{quote(said[1], safe='')}")
    assert (reply.status, reply.body["cancelling"]) == (200, False)
    code, _, err = await type_transfer(transfers, "cancel", said[2])
    assert code == 0, err
    code, _, err = await type_transfer(transfers, "show", said[1])
    assert (code, "0 of 1 hosts have the file." in err) == (1, True), err


@pytest.mark.long
async def test_ctrl_c_while_the_server_is_asked_says_where_to_look(transfers: Transfers) -> None:
    """Whether a transfer began is not known then."""
    async with running_silent_server() as (address, asked):
        env = {"HAULAGE_API_URL": address, "HAULAGE_API_KEY": transfers.key}
        process = await start_command("transfers", "send", "/etc/app.conf", "--to", "host-1", *place(), env=env)
        await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)

        process.send_signal(signal.SIGINT)

        ended = await wait_for_exit(process)
    assert ended.code == 130
    assert "`haulage ask /v1/transfers/jobs` shows whether it began." in ended.err


@pytest.mark.long
async def test_a_job_is_cancelled(transfers: Transfers) -> None:
    """What `send --no-wait` has requested."""
    code, out, err = await type_transfer(
        transfers, "send", "/etc/app.conf", "--to", "host-1", "--no-wait", "--json", *place()
    )
    assert code == 0, err

    [job_id] = json.loads(out)["job_ids"]
    code, _, err = await type_transfer(transfers, "cancel", job_id)

    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("send", "/nowhere/app.conf", "--to", "host-1"), "cannot be read", marks=pytest.mark.long),
        (("send", "/etc/app.conf", "--signature", "abc", "--to", "host-1"), "is no SHA-256"),
        pytest.param(("send", "/etc/app.conf", "--signature", "0" * 64), "No host is named", marks=pytest.mark.long),
        pytest.param(
            ("send", "/etc/app.conf", "--signature", "0" * 64, "--hosts", "/nowhere/hosts"),
            "cannot be read",
            marks=pytest.mark.long,
        ),
        (("show", "no-such-job"), "There is no such job"),
    ],
)
async def test_what_is_wrong_is_a_sentence(transfers: Transfers, arguments: tuple[str, ...], sentence: str) -> None:
    """With exit code 2; nothing is sent."""
    code, out, err = await type_transfer(transfers, *arguments)

    assert (code, out) == (2, "")
    assert sentence in err
    assert not transfers.sends


@pytest.mark.long
async def test_no_answer_has_a_code_of_its_own(transfers: Transfers) -> None:
    """3, and a wrong key is 2."""
    assert (await type_transfer(transfers, "show", "x", "--api", "http://127.0.0.1:1"))[0] == 3
    assert (await type_transfer(transfers, "show", "x", key="hlg_wrong"))[0] == 2
