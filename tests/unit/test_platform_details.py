"""Requests for one order: its id in the path, whole or in part, in pages, and counted by themselves."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import ValidationError

from clients.http import HttpResponse
from clients.platforms import InconsistentAnswers, PlatformRefused
from clients.platforms.client import AnswerWithValues
from domain.orders.capability import NEXT, Capability, PlatformOrder
from domain.orders.declarations import DetailCall, RateLimit
from domain.orders.known_platforms import AMAZON
from sims.platforms import texts
from sims.platforms.dialects.plain import ITEMS, PLAIN, WHOLE
from tests.support.platforms import SMALL_PAGES, RunningConnector, list_orders, running_connector

ORDERS: dict[str, Any] = {"orders": 60, "span_seconds": 600}


def plain(detail: DetailCall) -> Capability:
    """The plain record with calls for one order."""
    return PLAIN.model_copy(update={**SMALL_PAGES, "detail": detail})


async def list_window_orders(here: RunningConnector) -> list[PlatformOrder]:
    """The orders of some minutes, as they are listed."""
    return list_orders(await here.read(here.window(250)))


@pytest.mark.parametrize("odd_ids", [False, True])
async def test_an_order_is_asked_for_by_its_path(odd_ids: bool) -> None:
    """Slashes, spaces, percent signs and letters of any language in its id lead nowhere else."""
    async with running_connector(plain(WHOLE), **ORDERS, odd_ids=odd_ids) as here:
        for part in await list_window_orders(here):
            whole, _ = await here.connector.fetch_details(part)
            assert (whole.order_id, whole.raw) == (part.order_id, part.raw)
            assert ("/" in whole.order_id) == odd_ids


@pytest.mark.parametrize("odd_ids", [False, True])
async def test_a_part_goes_into_the_listed_order(odd_ids: bool) -> None:
    """All pages of it, in place of what the list has under its name; each number stays the text that was sent."""
    async with running_connector(plain(ITEMS), **ORDERS, odd_ids=odd_ids) as here:
        market = here.platform.market
        names = {str(texts.odd_id(n) if odd_ids else texts.order_id(n)): n for n in range(len(market.created))}
        parts = await list_window_orders(here)
        assert {len(texts.items(names[part.order_id])) for part in parts} == set(range(6))
        for part in parts:
            whole, _ = await here.connector.fetch_details(part)
            items = f'"items":[{",".join(texts.items(names[part.order_id]))}]'
            assert items.encode() in whole.raw
            told, before = json.loads(whole.raw), json.loads(part.raw)
            assert {**told, "items": None} == {**before, "items": None}
            assert (whole.order_id, whole.modified_at, whole.version) == (
                part.order_id,
                part.modified_at,
                part.version,
            )


async def test_amazons_items_come_with_their_order_at_their_own_rate() -> None:
    """Thirty at once and one in two seconds, where its list is asked once a minute; a day counts both."""
    async with running_connector(AMAZON, kind="amazon", **ORDERS) as here:
        parts = await list_window_orders(here)
        before = Counter(rate.bucket for rate in here.limiter.taken)
        for part in parts:
            whole, _ = await here.connector.fetch_details(part)
            told = json.loads(whole.raw)
            assert len(told["OrderItems"]) == len(texts.items(texts.number_of_amazon(whole.order_id)))
            assert told["AmazonOrderId"] == part.order_id
        taken = Counter(rate.bucket for rate in here.limiter.taken)
        taken.subtract(before)
    assert taken["platform:7"] == 0
    assert taken["platform:7:details"] == taken["platform:7:day"] >= len(parts) > 10
    [rate] = {(each.limit, round(each.window_seconds)) for each in here.limiter.taken if "details" in each.bucket}
    assert rate == (30, 61)


@pytest.mark.parametrize("order_id", [".", ".."])
async def test_an_id_that_leads_to_another_path_is_not_asked_for(order_id: str) -> None:
    """No encoding keeps these from meaning a folder."""
    async with running_connector(plain(WHOLE), **ORDERS) as here:
        [part, *_] = await list_window_orders(here)
        asked = here.platform.stats()["requests"]
        odd = PlatformOrder(part.platform, part.shop, order_id, part.modified_at, part.version, part.raw)
        with pytest.raises(InconsistentAnswers, match="cannot be asked for"):
            await here.connector.fetch_details(odd)
        assert here.platform.stats()["requests"] == asked


async def test_an_order_that_is_gone_is_told_in_the_platforms_words() -> None:
    """Whatever its id holds."""
    async with running_connector(plain(ITEMS), **ORDERS, odd_ids=True) as here:
        [part, *_] = await list_window_orders(here)
        odd = PlatformOrder(part.platform, part.shop, "no/such order", part.modified_at, part.version, part.raw)
        with pytest.raises(PlatformRefused, match="asked for order no/such order"):
            await here.connector.fetch_details(odd)


async def test_pages_of_an_order_that_lead_in_a_circle_are_left() -> None:
    """Its items are not all there is, nor doubled."""
    circle = ITEMS.model_copy(update={"next_parameter": "nobody_reads_this"})
    async with running_connector(plain(circle), **ORDERS) as here:
        parts = [
            part for part in await list_window_orders(here) if len(texts.items(texts.number_of(int(part.order_id)))) > 2
        ]
        with pytest.raises(InconsistentAnswers, match="in a circle"):
            await here.connector.fetch_details(parts[0])


@pytest.mark.parametrize(("body", "pages"), [(b"", 1_000), (bytes(1_000_000), 34)], ids=["pages", "bytes"])
async def test_an_order_does_not_lead_to_new_pages_for_ever(
    body: bytes, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page names another: they are left before they fill the memory."""
    asked: list[str | None] = []

    async def request_endless_page(detail: DetailCall, order_id: str, token: str | None) -> AnswerWithValues:
        asked.append(token)
        answer = HttpResponse(200, CIMultiDictProxy(CIMultiDict[str]()), body)
        return AnswerWithValues(answer, {"row": [], NEXT: len(asked)}, datetime.now(UTC))

    async with running_connector(plain(ITEMS), **ORDERS) as here:
        [part, *_] = await list_window_orders(here)
        monkeypatch.setattr(here.connector, "_request_details", request_endless_page)
        with pytest.raises(InconsistentAnswers, match="ever more pages of order"):
            await here.connector.fetch_details(part)
    assert len(asked) == pages


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "/orders"}, "either by {id} in its path or by `id_parameter`"),
        ({"id_parameter": "id"}, "either by {id} in its path or by `id_parameter`"),
        ({"path": "/orders/{order}"}, "holds '{order}'"),
        ({"path": "/orders/{id"}, "holds '{id'"),
        ({"next_parameter": ""}, "both `next` and `next_parameter`"),
        ({"next": None}, "both `next` and `next_parameter`"),
        ({"into": ""}, "only a part that goes `into` an order"),
        ({"rate": RateLimit(per_second=1, per_day=9).model_dump()}, "stands in `rate` of the platform"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    """With a sentence that says why."""
    with pytest.raises(ValidationError, match=words):
        DetailCall.model_validate({**ITEMS.model_dump(), **change})
