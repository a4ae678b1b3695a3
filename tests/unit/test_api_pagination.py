"""Cursors: opaque, readable only by us, and harmless whatever they hold."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from api.http import pagination
from api.orders import orders
from api.orders.requests import OrdersQuery
from clients.platforms import answers
from domain.faults import Invalid
from stores.tables.orders import Order

NAMES = st.from_regex(r"[0-9A-Za-z_-]{1,100}", fullmatch=True)
ORDER_LETTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


@given(st.datetimes(timezones=st.just(UTC)), NAMES)
def test_a_cursor_leads_back_to_its_position(moment: datetime, name: str) -> None:
    """What a page ended with is where the next one starts."""
    assert pagination.decode_cursor(pagination.encode_cursor((moment, name))) == (moment, name)


@given(st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_other_text_is_refused_with_a_sentence(cursor: str) -> None:
    """A cursor that was made up is the caller's fault, never a failure of the server."""
    with pytest.raises(Invalid, match="Send next_cursor"):
        pagination.decode_cursor(cursor)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00"])
def test_a_time_that_no_database_holds_is_refused(moment: str) -> None:
    """A made-up cursor cannot carry a time past the calendar's ends, nor one without an offset."""
    with pytest.raises(Invalid, match="Send next_cursor"):
        pagination.decode_cursor(base64.urlsafe_b64encode(f"{moment} name".encode()).decode())


def test_a_page_names_the_next_only_when_one_follows() -> None:
    """The surplus row is not shown; it only says that there is more."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = ["c", "b", "a"]
    full = pagination.build_page(rows, 2, str.upper, lambda row: (moment, row))
    last = pagination.build_page(rows, 3, str.upper, lambda row: (moment, row))
    assert full.items == ["C", "B"]
    assert pagination.decode_cursor(full.next_cursor or "") == (moment, "b")
    assert (last.items, last.next_cursor) == (["C", "B", "A"], None)


@given(st.text(ORDER_LETTERS, min_size=1, max_size=1_000), st.text(ORDER_LETTERS, min_size=1, max_size=200))
@example("№" * 333, "𝔖" * 200)
@example("a\nb", "c\nd")
def test_a_cursor_leads_back_to_any_order(order_id: str, shop: str) -> None:
    """However long its id and the name of its shop are, and whatever they hold."""
    assume(len(order_id.encode()) <= answers.ORDER_ID_MAX_BYTES)
    key: dict[str, Any] = {"platform": "p" * 40, "shop": shop, "order_id": order_id}
    row = Order(**key)
    moment = datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC)
    cursor = pagination.encode_cursor((moment, orders._encode_cursor_key(row)))

    found = OrdersQuery(cursor=cursor).after

    assert found is not None
    assert (found[0], *orders._decode_cursor_key(found[1])) == (moment, order_id, "p" * 40, shop)


@pytest.mark.parametrize("key", ["", "YQ", "YQBi", "YQBiAGMAZA", "_"])
def test_a_cursor_of_another_list_is_refused(key: str) -> None:
    """With fewer or more parts than the place of an order has."""
    with pytest.raises(Invalid, match="Send next_cursor"):
        orders._decode_cursor_key(key)
