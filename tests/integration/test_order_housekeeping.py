"""Housekeeping of orders: what is kept for a time goes after it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.orders import watch
from activities.orders.watch import OrderHousekeeping
from infra.database import Database
from infra.limits.limiter import LimitSpendingRow
from infra.settings import Settings
from services import services
from stores.tables.orders import ReplacedOrderRevision

pytestmark = pytest.mark.stack

KEPT_DAYS = 7


def make_replaced_copy(number: int, days_ago: float) -> ReplacedOrderRevision:
    """A copy that was replaced this number of days ago."""
    now = datetime.now(UTC)
    return ReplacedOrderRevision(
        platform="p",
        shop="s",
        order_id=str(number),
        revision=1,
        until_revision=2,
        modified_at=now,
        version=1,
        raw="{}",
        replaced_at=now - timedelta(days=days_ago),
    )


async def test_copies_go_when_no_mark_can_need_them(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch; those within the time stay, and so do raw pages."""
    monkeypatch.setattr(watch, "PURGE_BATCH", 2)
    async with database.session() as session:
        session.add_all([make_replaced_copy(number, KEPT_DAYS + 0.1) for number in range(5)])
        session.add_all([make_replaced_copy(number, KEPT_DAYS - 0.1) for number in range(5, 7)])
        # A mark that was made while it was being replaced, by a clock that is behind, is still good.
        session.add(make_replaced_copy(7, KEPT_DAYS + 0.02))
    async with services.open_services(settings) as held:
        key = "orders-raw/platform=p/day=2026-11-20/page.parquet"
        await held.objects.put(key, b"page")

        await ActivityEnvironment().run(OrderHousekeeping(held).purge_copies_pages_and_answers)

        assert [each.key for each in await held.objects.list("orders-raw/")] == [key]
        no_longer = settings.orders.model_copy(update={"raw_kept_days": 0})
        expired = replace(held, settings=settings.model_copy(update={"orders": no_longer}))
        await ActivityEnvironment().run(OrderHousekeeping(expired).purge_copies_pages_and_answers)
        assert await held.objects.list("orders-raw/") == []

    async with database.session() as session:
        left = (await session.exec(select(ReplacedOrderRevision.order_id))).all()
    assert sorted(left) == ["5", "6", "7"]


async def test_rates_of_platforms_that_have_run_out_go(settings: Settings, database: Database) -> None:
    """Also where no worker serves downloads, whose housekeeping removes them, too."""
    now = datetime.now(UTC)
    async with database.session() as session:
        for name, hours in (("over", -1), ("counts", 1)):
            session.add(LimitSpendingRow(bucket=name, returns_at=now + timedelta(hours=hours), amount=1))
    async with services.open_services(settings) as held:
        await ActivityEnvironment().run(OrderHousekeeping(held).purge_copies_pages_and_answers)

    async with database.session() as session:
        assert (await session.exec(select(LimitSpendingRow.bucket))).all() == ["counts"]
