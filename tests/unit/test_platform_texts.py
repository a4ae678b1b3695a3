"""Texts of platforms that are not quite JSON in UTF-8: read where possible, refused where ids would merge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest
from aiohttp import web

from clients.platforms import InconsistentAnswers, OrderPage, PlatformBusy
from clients.platforms.answers import OrderParser
from domain.orders.access import Account
from domain.orders.declarations import ErrorFormat, ErrorRule, ReactionToPlatformError
from domain.orders.jsonpath import replace_lone_surrogates_in_json
from domain.orders.windows import TimeWindow
from sims.platforms.dialects.base import Reply
from sims.platforms.dialects.plain import PLAIN
from tests.support.platforms import running_connector

RECORD = PLAIN.model_copy(
    update={
        "paging": PLAIN.paging.model_copy(update={"more": None}),
        "total": None,
        "rows": PLAIN.rows.model_copy(update={"list": "$.orders", "id": "$.id", "modified": "$.at", "version": None}),
    }
)
WINDOW = TimeWindow(start=datetime(2026, 11, 20, 10, tzinfo=UTC), end=datetime(2026, 11, 20, 11, tzinfo=UTC))
TEXT = '{"orders":[{"id":"%s","at":"2026-11-20T10:30:00Z","note":"%s"}]}'


@asynccontextmanager
async def answering(body: bytes, content_type: str) -> AsyncIterator[str]:
    """A platform that answers everything with the same bytes."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def read_first(body: bytes, content_type: str = "application/json") -> OrderPage:
    """The first page of a platform that answers with this."""
    async with (
        answering(body, content_type) as address,
        running_connector(RECORD, address=address, orders=1, span_seconds=60) as here,
    ):
        return await anext(here.connector.iterate_pages(WINDOW, None))


@pytest.mark.parametrize(
    ("body", "content_type", "note"),
    [
        (b"\xef\xbb\xbf" + (TEXT % ("1", "é")).encode(), "application/json", "é"),
        ((TEXT % ("1", "订单")).encode("gbk"), "application/json; charset=GBK", "订单"),
        ((TEXT % ("1", "订单")).encode(), "application/json; charset=gbk", "订单"),
        ((TEXT % ("1", "订单")).encode("utf-16"), 'application/json; charset="utf-16"', "订单"),
    ],
)
async def test_a_byte_order_mark_and_declared_charsets_are_read(body: bytes, content_type: str, note: str) -> None:
    """Every character is kept; a declared charset that the body does not follow is not believed."""
    page = await read_first(body, content_type)
    [order] = page.orders
    assert f'"note":"{note}"'.encode() in order.raw
    assert page.body == body, "what is kept for audit is what was sent"


@pytest.mark.parametrize(
    ("note", "stored"),
    [(rb"gift \ud83d", rb"gift \ufffd"), (rb"\ude00\ud83d\ude00", rb"\ufffd\ud83d\ude00"), (rb"\\ud83d", rb"\\ud83d")],
)
async def test_half_a_character_does_not_hold_a_window_back(note: bytes, stored: bytes) -> None:
    """An emoji that a platform cut in two; whole ones and backslashes stay as they were sent."""
    [order] = (await read_first((TEXT % ("1", "NOTE")).encode().replace(b"NOTE", note))).orders
    assert b'"note":"' + stored + b'"' in order.raw


async def test_bytes_of_no_known_charset_are_replaced() -> None:
    """One bad text among many orders: its order is kept, and the database can hold it."""
    [order] = (await read_first((TEXT % ("1", "NOTE")).encode().replace(b"NOTE", b"\xb6\xa9"))).orders
    assert "\ufffd" in order.raw.decode()


@pytest.mark.parametrize("order_id", [rb"a\u0000b", rb"a\ud83d", b"\xb6\xa9"])
async def test_ids_that_cannot_be_kept_apart_are_refused(order_id: bytes) -> None:
    """With a sentence of the platform's, before the database refuses them with one of its own."""
    with pytest.raises(InconsistentAnswers, match="its id holds a NUL character or one that was lost"):
        await read_first((TEXT % ("ID", "")).encode().replace(b"ID", order_id))


def test_what_needs_no_repair_stays() -> None:
    """Byte by byte, so that a text that is no JSON at all is refused as it was sent."""
    for text in (b'{"a":"\\u00e9\\ud83d\\ude00"}', b"<html>", b'"\\', b""):
        assert replace_lone_surrogates_in_json(text) == (text, False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xef\xbb\xbf" + '{"error":{"code":"7","message":"稍后"}}'.encode(), "application/json"),
        ('{"error":{"code":"7","message":"稍后"}}'.encode("gbk"), "application/json; charset=GBK"),
        (rb'{"error":{"code":"7","message":"\ud83d"}}', "application/json"),
    ],
)
async def test_an_error_is_understood_in_any_text(
    body: bytes, content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code says that the platform is busy: the slice waits, and does not fail for good."""
    busy = ErrorRule(meaning=ReactionToPlatformError.BUSY, codes=("7",), retry_after_seconds=45)
    errors = ErrorFormat(code="$.error.code", message="$.error.message", rules=(busy,))
    async with running_connector(PLAIN.model_copy(update={"errors": errors})) as here:
        reply = Reply(body, 400, {"Content-Type": content_type})
        monkeypatch.setattr(here.platform, "answer", lambda _: (reply, None))
        with pytest.raises(PlatformBusy) as refusal:
            await here.read(here.window(600))
        assert refusal.value.retry_after_seconds == 45


@pytest.mark.parametrize(
    ("order_id", "version", "reason"),
    [
        ('"%s"' % ("é" * 500), 2**63 - 1, None),
        (str(10**50), -(2**63), None),
        ('"%s"' % ("é" * 500 + "x"), 0, "its id is longer than 1,000 bytes"),
        ("1", 2**63, "its version has more than 64 bits"),
        ("1", -(2**63) - 1, "its version has more than 64 bits"),
        ("1", 10**40, "its version has more than 64 bits"),
    ],
)
def test_what_the_database_cannot_hold_is_refused_in_a_sentence(
    order_id: str, version: int, reason: str | None
) -> None:
    """Rather than failing every attempt at the commit."""
    parser = OrderParser(PLAIN, Account("7", "shop", "http://a"))
    row = f'{{"id":{order_id},"updated_at":"2026-11-20T10:30:00Z","version":{version}}}'
    if reason is None:
        assert parser.parse_order(msgspec.Raw(row.encode()), WINDOW.start, WINDOW.end).version == version
        return
    with pytest.raises(InconsistentAnswers, match=reason):
        parser.parse_order(msgspec.Raw(row.encode()), WINDOW.start, WINDOW.end)
