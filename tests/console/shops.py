"""Platforms for the console's tests of orders, and what those tests read and press."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex

from playwright.async_api import Locator, Page
from sqlalchemy import update
from sqlmodel import col

from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import OrderPlatform, OrderSlice
from tests.support.orders import Orders, since
from tests.support.waiting import eventually

SPAN_SECONDS = 3_600
SLICE = timedelta(minutes=10)


@dataclass(frozen=True)
class Shop:
    """A platform of the test's own, with an hour of orders that are not fetched yet."""

    orders: Orders
    number: str

    @property
    def page(self) -> str:
        """The address of its page."""
        return f"/console/orders/platforms/{self.number}"

    async def fetch(self) -> None:
        """One cycle to its end."""
        await self.orders.fetch(self.number)

    def mend(self, **faults: float) -> None:
        """Let the platform answer rightly again."""
        platform = self.orders.platforms.by_number[self.number]
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(**faults)}))

    async def let_the_day_end(self) -> None:
        """Let a day pass on the platform's clock, and that be seen; nothing more is claimed."""
        path = f"/v1/platforms/{self.number}/config"
        await self.orders.ask("PATCH", path, json={"settle_lag": 10 * 86_400})
        self.orders.platforms.by_number[self.number].market.clock.advance(86_400)
        await self.fetch()

    async def newest(self) -> str:
        """The page of its newest order, as the API writes it."""
        headers = {"Authorization": f"Bearer {self.orders.key}"}
        address = f"{self.orders.api_client.address}/v1/orders?platform={self.number}&limit=1"
        async with self.orders.api_client.session.get(address, headers=headers) as answer:
            return await answer.text()

    async def fail(self) -> int:
        """Cycles until every slice is in the failed set; how many there are."""

        async def all_failed() -> int:
            await self.fetch()
            status = await self.orders.status(self.number)
            whole = [{"start": status["starts_at"], "end": status["claimed_to"]}]
            failed: int = status["slices_failed"]
            return failed if status["gaps"] == whole and not status["slices_open"] else 0

        return await eventually(all_failed)


async def make_shop(orders: Orders, faults: PlatformFaults | None = None) -> Shop:
    """Set one up, paused, so that only the test says when it claims; where it is faulty, one attempt fails a slice."""
    number = f"shop-{token_hex(4)}"
    scenario = PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=faults or PlatformFaults())
    platform = orders.play(scenario, number)
    await orders.set_up(number)
    retries = {"retries": 0} if faults else {}
    await orders.configure(number, starttime=since(platform, seconds=SPAN_SECONDS), interval=600, **retries)
    return Shop(orders, number)


async def write_ledger(shop: Shop, begin: datetime, count: int, failed: set[int]) -> None:
    """A ledger with this number of slices, as if they had been read."""
    rows = [
        OrderSlice(
            platform=shop.number,
            start_at=begin + number * SLICE,
            end_at=begin + (number + 1) * SLICE,
            track="live",
            claimed_at=begin,
            orders=3,
            done_at=None if number in failed else begin,
            failed_at=begin if number in failed else None,
            swept_at=None if number in failed else begin,
            missed=0,
        )
        for number in range(count)
    ]
    end = begin + count * SLICE
    marks = {"starts_at": begin, "history_to": begin, "live_from": begin, "claimed_to": end}
    marks["complete_to"] = begin + min(failed) * SLICE
    async with shop.orders.services.database.session() as session:
        session.add_all(rows)
        await session.execute(update(OrderPlatform).where(col(OrderPlatform.platform) == shop.number).values(**marks))


def facts(page: Page, label: str) -> Locator:
    """The value beside a label."""
    return page.locator("dl.facts > div").filter(has=page.get_by_text(label, exact=True)).locator("dd")


async def confirm(page: Page, title: str, action: str, reason: str = "") -> None:
    """Answer the question that a press has raised, with a name where it asks for a reason."""
    dialog = page.get_by_role("dialog", name=title)
    if reason:
        await dialog.get_by_label("Your name").fill("ann")
        await dialog.get_by_label("Reason").fill(reason)
    await dialog.get_by_role("button", name=action, exact=True).click()
