"""Orders in the demo: an hour of orders of a platform that changes while it is read, compared with its ledger."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from demo.part import Demo, Show, WrongOutcome
from haulage.orders import Orders, Platform, PlatformSetup
from haulage.projects import find_project_id_of_key
from sims.platforms import checker
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import Changes, PlatformScenario

SPAN_SECONDS: Final = 3_600
INTERVAL_SECONDS: Final = 300
LAG_SECONDS: Final = 60
OPEN_POLL_SECONDS: Final = 0.2
SCENARIO: Final = PlatformScenario(
    orders=4_000,
    span_seconds=SPAN_SECONDS,
    speed=10,
    changes=Changes(per_second=2, per_page=0.5, created_share=0.3, late_share=0.2, late_seconds=LAG_SECONDS / 2),
)
"""Its clock runs ten times as fast; orders change before every second page, and some show up late. They are
fetched from its start on, which stays where it is however long the set-up takes."""
FILE: Final = "orders.jsonl"
DIFFERENCES_SHOWN: Final = 5


@dataclass
class OrdersPart:
    """An hour of orders, and those that are changed meanwhile."""

    system: str = "orders"
    _number: str = field(default_factory=lambda: f"demo-{token_hex(3)}")
    """Of the platform: another one each time."""
    _complete_to: datetime | None = None
    _stored: int = 0

    async def prepare(self, demo: Demo) -> None:
        """Begin the platform, configure it, and start its schedule, which would fetch it within a minute."""
        begun = await demo.call_stand_in("platforms", "PUT", f"/_sim/{self._number}", data=SCENARIO.model_dump_json())
        credentials = await demo.call_stand_in("platforms", "GET", f"/_sim/{self._number}/credentials")
        (demo.stand_in_folder / "credentials" / f"{self._number}.json").write_text(json.dumps(credentials))
        project_id = await find_project_id_of_key(demo.api, demo.key)
        setup = PlatformSetup(
            project_id=project_id or "",
            kind=PLAIN.kind,
            shop=self._number,
            base_url=begun["url"],
            capability=PLAIN.model_dump(mode="json"),
            is_paused=True,
        )
        async with Orders(demo.api, demo.admin_key) as orders:
            await orders.set_up(self._number, setup)
            await orders.configure(
                self._number,
                credentials=self._number,
                starttime=SCENARIO.start.isoformat(),
                interval=INTERVAL_SECONDS,
                settle_lag=LAG_SECONDS,
                sweep_after=0,
                retries=2,
                retryintv=0.2,
                threads=4,
            )
            await orders.resume(self._number, who="the demo", reason="it is configured")

    async def run(self, demo: Demo, show: Show) -> str:
        """Fetch up to the present, then let the last change settle and fetch that, too."""
        async with Orders(demo.api, demo.admin_key) as orders:
            present = await self._read_clock(demo) - timedelta(seconds=INTERVAL_SECONDS + LAG_SECONDS)
            await self._fetch(orders, present, show)
            await demo.call_stand_in("platforms", "POST", f"/_sim/{self._number}/freeze")
            last = await self._read_clock(demo)
            later = INTERVAL_SECONDS + 2 * LAG_SECONDS
            await demo.call_stand_in(
                "platforms", "POST", f"/_sim/{self._number}/advance", params={"seconds": str(later)}
            )
            await self._fetch(orders, last, show)
            # A run of its schedule would move orders within the list while it is compared.
            reason = "its orders are compared with the platform's ledger"
            await orders.pause(self._number, who="the demo", reason=reason)
            platform = await self._wait_for_open_slices(orders)
            slices = len([each async for each in orders.list_slices(self._number)])
        self._complete_to = platform.complete_to
        async with Orders(demo.api, demo.key) as orders:
            mark = await orders.create_mark(self._number)
        self._stored = mark.total
        return f"fetched {mark.total:,} orders in {slices} slices, while orders were changed"

    async def check(self, demo: Demo) -> str:
        """Compare every stored order with the platform's ledger."""
        ledger = await demo.call_stand_in("platforms", "GET", f"/_sim/{self._number}/ledger")
        copies, lines = list[checker.Copy](), list[str]()
        async with Orders(demo.api, demo.key) as orders:
            async for each in orders.list_orders(platform=self._number):
                copies.append(checker.copy_of(each.order_id, each.modified_at.timestamp(), each.version))
                lines.append(json.dumps(each.order))
        _write(demo.folder / FILE, lines)
        findings = compare(ledger, copies, self._complete_to)
        if not findings.is_clean or len(copies) != self._stored:
            raise WrongOutcome(
                f"Of {len(ledger['ids']):,} orders {len(findings.lost)} are lost, {len(findings.stale)} stale, "
                f"{len(findings.duplicated)} doubled and {len(findings.invented)} invented; the first of them: "
                f"{list_first_differences(ledger, findings)}."
            )
        return f"id, time and version of {len(copies):,} orders"

    async def _fetch(self, orders: Orders, until: datetime, show: Show) -> Platform:
        async for platform in orders.fetch(self._number, until=until):
            if platform.slices_failed or platform.trouble is not None:
                raise WrongOutcome(await describe_failure(orders, platform))
            if platform.starts_at is None:
                show(0, None, "no slice is claimed yet")
                continue
            complete_to = min(platform.complete_to or platform.starts_at, until)
            done, total = (int((moment - platform.starts_at).total_seconds()) for moment in (complete_to, until))
            show(done, total, f"complete to {complete_to:%H:%M}, going on to {until:%H:%M}")
        return platform

    async def _wait_for_open_slices(self, orders: Orders) -> Platform:
        while True:
            platform = await orders.get(self._number)
            if not platform.slices_open:
                return platform
            await asyncio.sleep(OPEN_POLL_SECONDS)

    async def _read_clock(self, demo: Demo) -> datetime:
        seen = await demo.call_stand_in("platforms", "GET", f"/_sim/{self._number}/now")
        return datetime.fromisoformat(seen["now"]).replace(microsecond=0)


def compare(ledger: Any, copies: list[checker.Copy], complete_to: datetime | None) -> checker.Findings:
    """Hold stored orders against a ledger, as far as the platform is complete."""
    until_us = 0 if complete_to is None else int(complete_to.timestamp()) * 1_000_000
    return checker.check(checker.truth(ledger, until_us=until_us), copies, known=checker.truth(ledger))


def list_first_differences(ledger: Any, findings: checker.Findings) -> str:
    """Name some of the orders that differ, each with the time of its last change on the platform."""
    changed_us = dict(zip(ledger["ids"], ledger["modified_us"], strict=True))
    differing = [*findings.lost, *findings.stale, *findings.duplicated, *findings.invented][:DIFFERENCES_SHOWN]
    times = (datetime.fromtimestamp(changed_us.get(each, 0) / 1_000_000, UTC) for each in differing)
    return ", ".join(f"{each} of {at:%Y-%m-%d %H:%M:%S}" for each, at in zip(differing, times, strict=True))


async def describe_failure(orders: Orders, platform: Platform) -> str:
    """Say why nothing more can be fetched: the platform's trouble, or the fault of the first failed slice."""
    if platform.trouble is not None:
        return platform.trouble.sentence
    faults = [each.fault async for each in orders.list_slices(platform.platform) if each.fault is not None]
    return f"{platform.slices_failed} slices failed: {faults[0].sentence if faults else 'they say no cause.'}"


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
