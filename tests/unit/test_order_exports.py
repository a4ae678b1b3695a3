"""Pages of an export of orders: read in parts, each behind the one before, and bounded by what a download takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.orders import context
from api.orders.context import SnapshotTotalAndPageEndCache
from domain.faults import Invalid
from stores.orders import order_copies
from stores.orders.order_copies import OrderSnapshot, SnapshotOrder

SNAPSHOT = OrderSnapshot("shop-1", 1)
ORDERS = [SnapshotOrder("s", f"{number:03}", f'{{"n":{number}}}') for number in range(23)]


class Reading:
    """What is read of the database."""

    def __init__(self) -> None:
        self.asked = list[tuple[int, int, str | None]]()

    async def list_snapshot_orders(
        self, _: Any, snapshot: OrderSnapshot, size: int, *, skipped: int = 0, after: tuple[str, str] | None = None
    ) -> list[SnapshotOrder]:
        """Some orders, behind one or a number of them."""
        self.asked.append((size, skipped, after and after[1]))
        rest = ORDERS[skipped:] if after is None else [each for each in ORDERS if each.order_id > after[1]]
        return rest[:size]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """A database of 23 orders, read ten at a time."""
    found = Reading()
    monkeypatch.setattr(order_copies, "list_snapshot_orders", found.list_snapshot_orders)
    monkeypatch.setattr(context, "ORDERS_READ_AT_ONCE", 10)
    return found


@pytest.fixture
def cache() -> SnapshotTotalAndPageEndCache:
    """A cache without a database."""
    return SnapshotTotalAndPageEndCache(None, 1_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 9, 10, 11, 20, 23, 24, 100])
async def test_pages_follow_each_other(reading: Reading, cache: SnapshotTotalAndPageEndCache, size: int) -> None:
    """Whatever their size; none is read by skipping but the first."""
    texts = list[str]()
    while page := await cache.read_page(SNAPSHOT, len(texts), size):
        assert len(page) == min(size, len(ORDERS) - len(texts))
        texts += page
    assert texts == [each.text for each in ORDERS]
    assert {after for _, _, after in reading.asked[1:]} <= {each.order_id for each in ORDERS}
    assert max(most for most, _, _ in reading.asked) == min(size, 10)


async def test_a_page_in_the_middle_is_found_by_its_position(
    reading: Reading, cache: SnapshotTotalAndPageEndCache
) -> None:
    """As of a download that reads several ranges at a time; then its parts follow each other."""
    assert await cache.read_page(SNAPSHOT, 5, 12) == [each.text for each in ORDERS[5:17]]
    assert reading.asked == [(10, 5, None), (2, 5, "014")]


@pytest.mark.parametrize("text", ["n", 10 * "单"])
async def test_a_page_that_no_download_takes_is_refused_before_all_of_it_is_read(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A page may be of 10,000 orders, each of megabytes; what a download takes is counted in bytes."""
    monkeypatch.setattr(f"{__name__}.ORDERS", [SnapshotOrder("s", each.order_id, f'"{text}"') for each in ORDERS])
    body = json.dumps({"total": 10**18, "data": [text] * 10}, ensure_ascii=False, separators=(",", ":")).encode()
    cache = SnapshotTotalAndPageEndCache(None, len(body) + 2)  # type: ignore[arg-type]
    assert len(await cache.read_page(SNAPSHOT, 0, 10)) == 10
    with pytest.raises(Invalid, match="smaller page_size"):
        await cache.read_page(SNAPSHOT, 0, 20)
    assert len(reading.asked) == 3
