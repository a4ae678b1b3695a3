"""`haulage orders` against an API with scripted responses: what it asks for, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import command, steering
from cli import orders as orders_command
from cli.command import CommandOutput
from haulage.errors import WorkFailed
from haulage.orders import Orders
from tests.support.api_peer import ApiPeer, running_api_peer

PLATFORM: dict[str, Any] = {
    "platform": "shop-1",
    "project_id": "prj_1",
    "kind": "plain",
    "shop": "s",
    "base_url": "https://shop.example.com",
}
SLICE: dict[str, Any] = {
    "slice": "20261120T100000Z:20261120T101000Z",
    "window": {"start": "2026-11-20T10:00:00Z", "end": "2026-11-20T10:10:00Z"},
    "state": "failed",
    "track": "live",
    "attempts": 4,
    "claimed_at": "2026-11-20T10:20:00Z",
    "workflow_id": "order-slice:shop-1",
    "fault": {"code": "platform_busy", "message": "The shop is away.", "hint": ""},
}
CONFIG: dict[str, Any] = {
    "platform": "shop-1",
    "version": 2,
    "effective": {"starttime": {"value": "last 2 hours", "origin": "platform"}},
    "inherited": {},
    "own": {},
}
NONE: dict[str, Any] = {"items": [], "next_cursor": None}


class Typed:
    """Commands whose output is kept instead of printed."""

    def __init__(self, peer: ApiPeer, orders: Orders) -> None:
        self.peer, self._orders = peer, orders
        self.shown = list[str]()

    async def run(self, typed: Any, *arguments: Any, **options: Any) -> CommandOutput:
        """Run a command's work."""
        works = list[Any]()
        with pytest.MonkeyPatch.context() as patching:
            for module in (orders_command, steering):
                patching.setattr(module, "run_as_admin", lambda work, *_, **__: works.append(work))
            typed(*arguments, **options)
        [work] = works
        result: CommandOutput = await work(self._orders, command.ApiAddress(self.peer.url, "key"), self)
        return result

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        """Show progress."""
        self.shown.append(text)

    def lines(self) -> list[str]:
        """What was asked of the API."""
        return [seen.line for seen in self.peer.seen]


@pytest.fixture
async def typed() -> AsyncIterator[Typed]:
    """Commands, and the API that they talk to."""
    async with running_api_peer() as peer, Orders(peer.url, "key", patience_seconds=30.0) as orders:
        yield Typed(peer, orders)


async def test_the_status_reads_what_has_failed_and_not_the_whole_ledger(typed: Typed) -> None:
    """A platform of years has hundreds of thousands of slices."""
    typed.peer.says(200, PLATFORM | {"slices_failed": 1, "sweeps_failed": 1})
    typed.peer.says(200, {"items": [SLICE], "next_cursor": None})
    typed.peer.says(200, {"items": [SLICE | {"state": "done"}], "next_cursor": None})

    output = await typed.run(orders_command.status, "shop-1")

    assert output.exit_code == 1
    assert [line.partition(" ")[2] for line in output.lines[1:]] == [
        "failed: The shop is away.",
        "done: The shop is away.",
    ]
    assert [dict(seen.query) for seen in typed.peer.seen[1:]] == [
        {"state": "failed", "limit": "100"},
        {"sweep": "failed", "limit": "100"},
    ]


async def test_the_status_of_a_platform_without_a_fault_is_one_request(typed: Typed) -> None:
    """Nothing is listed where nothing has failed."""
    typed.peer.says(200, PLATFORM)
    assert (await typed.run(orders_command.status, "shop-1")).exit_code == 0
    assert typed.lines() == ["GET /v1/platforms/shop-1"]


async def test_a_fetch_reads_one_of_the_failed_slices(typed: Typed) -> None:
    """Not all pages of them."""
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})
    typed.peer.says(200, PLATFORM | {"slices_failed": 300})
    typed.peer.says(200, {"items": [SLICE], "next_cursor": "more"})
    with pytest.raises(WorkFailed, match=r"300 slices of shop-1 failed, the first 2026.*The shop is away"):
        await typed.run(orders_command.fetch, "shop-1")


async def test_a_fetch_whose_failed_slices_are_redone_meanwhile_says_how_far_it_is(typed: Typed) -> None:
    """The failed set is empty when it is read."""
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})
    typed.peer.says(200, PLATFORM | {"slices_failed": 1})
    typed.peer.says(200, NONE)
    assert (await typed.run(orders_command.fetch, "shop-1")).lines[0].startswith("shop-1: nothing yet")


SETUP = ("shop-1", "https://shop.example.com", "plain", "shop")
PROJECT = {"project": "prj_1", "api": "http://127.0.0.1"}


@pytest.mark.parametrize(
    ("starts_at", "since", "sent"),
    [
        ("2026-11-20T10:00:00Z", None, {}),
        ("2026-11-20T10:00:00Z", "last 2 hours", {"starttime": "last 2 hours"}),
        (None, None, {"starttime": "last 3 months"}),
        (None, "last 2 hours", {"starttime": "last 2 hours"}),
    ],
)
async def test_a_platform_that_has_begun_keeps_its_beginning(
    typed: Typed, starts_at: str | None, since: str | None, sent: dict[str, str]
) -> None:
    """A set-up that only changes its address does not name another one, which would be refused when half is done."""
    typed.peer.says(200, PLATFORM | {"starts_at": starts_at})
    typed.peer.says(200, PLATFORM)
    typed.peer.says(200, CONFIG)
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})

    output = await typed.run(orders_command.set_up, *SETUP, since=since, **PROJECT)

    assert typed.peer.seen[2].body == {"credentials": "shop", **sent}
    assert output.lines == (
        "shop-1: plain at https://shop.example.com, orders last 2 hours; version 2 of its configuration",
    )


@pytest.mark.parametrize("text", ["[]", "7", "{", ""])
async def test_a_record_that_is_no_object_is_refused(typed: Typed, text: str, tmp_path: Path) -> None:
    """In a sentence that names the file."""
    record = tmp_path / "record.json"
    record.write_text(text)
    with pytest.raises(typer.BadParameter, match=r"record\.json holds no JSON"):
        await typed.run(orders_command.set_up, *SETUP, record=record, **PROJECT)


async def test_a_fetch_says_that_no_worker_serves_the_platform(typed: Typed) -> None:
    """And what starts one, rather than waiting without a word."""
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})
    for change in (
        {"slices_open": 3},
        {"slices_open": 3, "unserved_since": "2026-11-20T10:00:00Z"},
        {"slices_open": 0, "slices_failed": 1},
    ):
        typed.peer.says(200, PLATFORM | change)
    typed.peer.says(200, NONE)

    await typed.run(orders_command.fetch, "shop-1")

    missing = "no worker serves it since 2026-11-20 10:00:00 UTC: start one by `haulage worker --queues orders-shop-1`"
    assert [missing in text for text in typed.shown] == [False, True, False]


async def test_all_parts_of_the_failed_set_are_requested_before_one_is_waited_for(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of the first part that fails again must not leave out those that follow."""
    monkeypatch.setattr(steering, "POLL_SECONDS", 0.01)
    later = SLICE | {"slice": "20261120T101000Z:20261120T102000Z"}
    for part, next_start in ((SLICE, "2026-11-20T10:10:00Z"), (later, None)):
        typed.peer.says(200, {"items": [part], "next_cursor": None})
        typed.peer.says(200, {"done": [part["slice"]], "unchanged": [], "next_start": next_start})
    typed.peer.says(200, {"items": [SLICE | {"finished_at": "2026-11-20T10:30:00Z"}, later], "next_cursor": None})

    with pytest.raises(WorkFailed, match="failed again: The shop is away"):
        await typed.run(steering.redo, "shop-1")

    assert typed.shown == ["0 of 2 slices read again"]
    assert [line for line in typed.lines() if "POST" in line] == ["POST /v1/platforms/shop-1/slices:redo"] * 2


async def test_a_redo_shows_how_many_slices_were_read_again(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning on: the rate that a platform allows may hold it up for long."""
    monkeypatch.setattr(steering, "POLL_SECONDS", 0.01)
    later = SLICE | {"slice": "20261120T101000Z:20261120T102000Z"}
    read = {"state": "done", "fault": None, "finished_at": "2026-11-20T10:30:00Z"}
    typed.peer.says(200, {"items": [SLICE, later], "next_cursor": None})
    typed.peer.says(200, {"done": [SLICE["slice"], later["slice"]], "left": [], "next_start": None})
    typed.peer.says(200, {"items": [SLICE | read, later], "next_cursor": None})
    typed.peer.says(200, {"items": [SLICE | read, later | read], "next_cursor": None})

    output = await typed.run(steering.redo, "shop-1")

    assert typed.shown == ["0 of 2 slices read again", "1 of 2 slices read again"]
    assert output.lines == (f"{SLICE['slice']}: read again", f"{later['slice']}: read again")


async def test_the_progress_of_a_fetch_names_the_zone_of_its_times(typed: Typed) -> None:
    """They are in UTC, whatever zone the answer has."""
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})
    moments = {"starts_at": "2026-11-20T10:00:00Z", "claimed_to": "2026-11-20T12:00:00Z"}
    typed.peer.says(200, PLATFORM | moments | {"complete_to": "2026-11-20T12:00:00+01:00", "slices_open": 1})
    settled = {"complete_to": "2026-11-20T12:00:00Z", "platform_now": "2026-11-20T12:00:00Z"}
    typed.peer.says(200, PLATFORM | moments | settled)
    await typed.run(orders_command.fetch, "shop-1")
    assert typed.shown[0] == "complete to 2026-11-20 11:00:00 UTC, 1 slice open"


async def test_one_slice_is_counted_as_one(typed: Typed) -> None:
    """In the state of a platform, and where it has failed."""
    typed.peer.says(200, PLATFORM | {"slices_open": 1})
    assert "1 slice open, 0 failed" in (await typed.run(orders_command.status, "shop-1")).lines[0]
    typed.peer.says(200, {"platform": "shop-1", "is_paused": False})
    typed.peer.says(200, PLATFORM | {"slices_failed": 1})
    typed.peer.says(200, {"items": [SLICE], "next_cursor": None})
    with pytest.raises(WorkFailed, match="1 slice of shop-1 failed"):
        await typed.run(orders_command.fetch, "shop-1")
