"""`haulage orders` as people and scripts type it: what it prints, and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import CREDENTIALS, LAG_SECONDS, Orders, since

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
GOOD = PlatformScenario(orders=40, span_seconds=3_600)
LYING = GOOD.model_copy(update={"faults": PlatformFaults(total_off=2)})
"""It counts two orders more than it lists."""


async def type_orders(orders: Orders, *arguments: str, key: str | None = None) -> tuple[int | None, str, str]:
    """Type it; return the exit code, and what it printed on both outputs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    admin_key = orders.api_client.settings.api.admin_key.get_secret_value()
    address = {"HAULAGE_API_URL": orders.api_client.address, "HAULAGE_API_KEY": key or admin_key}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "orders", *arguments),
        cwd=ROOT,
        env={**clean, **address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def build_setup(orders: Orders, number: str, starttime: str, record: Path) -> list[str]:
    """Return the arguments that set a platform up with one slice, whose first failure counts."""
    record.write_text(PLAIN.model_dump_json())
    options = {"interval": 3_500, "settle_lag": LAG_SECONDS, "retries": 0, "sweep_after": 0}
    return [
        *("set-up", number, orders.platforms.url(number), "--kind", "plain", "--record", str(record)),
        *("--credentials", CREDENTIALS, "--since", starttime, "--project", orders.project_id),
        *(part for name, value in options.items() for part in ("--option", f"{name}={value}")),
    ]


@pytest.mark.long
async def test_a_platform_that_lies_is_fetched_once_it_is_mended(orders: Orders, tmp_path: Path) -> None:
    """What fails is exit code 1 with the cause, a redo that fails again as well; mended, all orders are listed."""
    code, out, err = await type_orders(orders, "status")
    assert (code, out, "No platform is set up" in err) == (0, "", True), err
    platform = orders.play(LYING, "shop-1")
    setup = build_setup(orders, "shop-1", since(platform, seconds=3_600), tmp_path / "plain.json")
    code, out, err = await type_orders(orders, *setup)
    assert (code, "plain at http" in out) == (0, True), err

    code, out, _ = await type_orders(orders, "fetch", "shop-1", "--json")
    failure = json.loads(out)
    assert (code, failure["code"], failure["slices_failed"]) == (1, "platform_failed", 1)
    code, out, _ = await type_orders(orders, "status", "shop-1")
    assert (code, "1 failed" in out) == (1, True), out
    code, every, _ = await type_orders(orders, "status")
    assert (code, every) == (1, out.partition("\n")[0] + "\n")
    code, _, err = await type_orders(orders, "redo", "shop-1")
    assert (code, "failed again: " in err) == (1, True), err

    platform.set(GOOD)
    code, out, err = await type_orders(orders, "redo", "shop-1", "--cause", "platform_failed")
    assert (code, out.rstrip().endswith(": read again")) == (0, True), err
    code, out, _ = await type_orders(orders, "status", "shop-1")
    assert (code, "0 slices open, 0 failed" in out) == (0, True), out
    code, every, _ = await type_orders(orders, "status", "--json")
    assert (code, [each["platform"] for each in json.loads(every)["platforms"]]) == (0, ["shop-1"])
    code, out, err = await type_orders(orders, "list", "shop-1", "--limit", "100")
    ids = {str(json.loads(line)["id"]) for line in out.splitlines()}
    assert code == 0, err
    assert ids
    assert ids <= set(platform.ledger()["ids"])


@pytest.mark.long
async def test_a_slice_is_given_up_with_a_reason(orders: Orders, tmp_path: Path) -> None:
    """Split first, which the platform does not help; then the whole failed set is skipped."""
    platform = orders.play(LYING, "shop-1")
    await type_orders(orders, *build_setup(orders, "shop-1", since(platform, seconds=3_600), tmp_path / "plain.json"))
    assert (await type_orders(orders, "fetch", "shop-1"))[0] == 1

    code, out, err = await type_orders(orders, "split", "shop-1")
    assert (code, out.rstrip().endswith(": split")) == (0, True), err
    assert (await type_orders(orders, "fetch", "shop-1"))[0] == 1
    code, out, err = await type_orders(orders, "skip", "shop-1", "--reason", "the shop counts wrongly")
    assert (code, out.count(": skipped")) == (0, 2), err
    code, out, _ = await type_orders(orders, "skip", "shop-1", "--reason", "once more")
    assert (code, out) == (0, "No slice was skipped.\n")


@pytest.mark.long
async def test_a_platform_is_paused_and_resumed(orders: Orders, tmp_path: Path) -> None:
    """A paused one is not fetched: the API refuses, which is exit code 2, and so does it with another key."""
    platform = orders.play(GOOD, "shop-1")
    await type_orders(orders, *build_setup(orders, "shop-1", since(platform, seconds=3_600), tmp_path / "plain.json"))

    assert (await type_orders(orders, "pause", "shop-1", "--reason", "stocktaking", "--who", "ann"))[:2] == (
        0,
        "shop-1: paused\n",
    )
    code, _, err = await type_orders(orders, "fetch", "shop-1")
    assert (code, "paused" in err) == (2, True), err
    assert (await type_orders(orders, "resume", "shop-1", "--reason", "counted"))[:2] == (0, "shop-1: resumed\n")
    code, out, err = await type_orders(orders, "fetch", "shop-1")
    assert (code, out.startswith("shop-1: complete to ")) == (0, True), err
    assert (await type_orders(orders, "status", "shop-1", key=orders.key))[0] == 2


@pytest.mark.long
async def test_a_wrong_command_is_refused(orders: Orders) -> None:
    """Without a project for another machine's API, and an option without a value."""
    setup = ("set-up", "shop-1", orders.platforms.url("shop-1"), "--kind", "shopify", "--credentials", CREDENTIALS)
    code, _, err = await type_orders(orders, *setup)
    assert (code, "--project" in err) == (2, True), err
    code, _, err = await type_orders(orders, *setup, "--option", "interval")
    assert (code, "NAME=VALUE" in err) == (2, True), err
    wrong = ("set-up", "shop-1", orders.platforms.url("shop-1"), "--kind", "shopify", "--project", orders.project_id)
    code, _, err = await type_orders(orders, *wrong, "--credentials", "nofile")
    assert (code, err.count("There are no credentials 'nofile'")) == (2, 1), err
    assert "shop-1 is set up, paused and not configured" in err
    for command in (("resume", "shop-1", "--reason", "begin"), ("fetch", "shop-1")):
        code, _, err = await type_orders(orders, *command)
        assert code == 2, err
        assert "is not configured. Configure it first: `haulage orders set-up shop-1 …`" in err
    orders.play(GOOD, "shop-1")
    code, out, err = await type_orders(orders, *wrong, "--credentials", CREDENTIALS, "--since", "last 1 hours")
    assert (code, "orders last 1 hour;" in out) == (0, True), err
    assert not (await orders.status("shop-1"))["is_paused"]
    code, out, err = await type_orders(orders, "list", "nope")
    assert (code, out, "'nope'" in err) == (2, "", True), err
