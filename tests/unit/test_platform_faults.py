"""The connector and platforms that fail, tire, lie or send it elsewhere: each way ends in the error of its name."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pytest
from pydantic import SecretStr

from clients.platforms import (
    CredentialsRefused,
    InconsistentAnswers,
    OrderPage,
    PlatformBusy,
    PlatformRefused,
    client,
    pagination,
    permits,
)
from domain.orders.access import Credentials
from domain.orders.capability import Capability
from domain.orders.known_platforms import SHOPIFY, WOOCOMMERCE
from sims.platforms import checker
from sims.platforms.dialects.base import Reply, StandInRequest
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import Kind, Limits, PlatformFaults
from tests.support.platforms import KINDS, SMALL_PAGES, list_orders, newest_copies, running_connector

ORDERS: dict[str, Any] = {"orders": 3_000, "span_seconds": 3_600}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_PAUSES_SECONDS", (0.0, 0.0))


def plain(**parts: dict[str, Any]) -> Capability:
    """The plain record with small pages and some other declarations."""
    record = PLAIN.model_copy(update=SMALL_PAGES)
    return record.model_copy(
        update={name: getattr(record, name).model_copy(update=part) for name, part in parts.items()}
    )


@pytest.mark.parametrize("fault", ["errors", "resets"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bad_moment_is_sat_out(kind: Kind, fault: str) -> None:
    """Two answers that fail are asked for again, and the window is whole."""
    faults = PlatformFaults.model_validate({fault: 1, "only_first": 2})
    async with running_connector(kind=kind, **ORDERS, faults=faults) as here:
        window = here.window(600)
        assert checker.check(here.truth(window), newest_copies(await here.read(window))).is_clean
        assert here.platform.mishaps_happened == 2


@pytest.mark.parametrize("fault", ["errors", "resets"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_platform_that_stays_away_is_busy(kind: Kind, fault: str) -> None:
    """After three tries for one page; how long to wait is ours to know."""
    async with running_connector(kind=kind, **ORDERS, faults=PlatformFaults.model_validate({fault: 1})) as here:
        with pytest.raises(PlatformBusy) as busy:
            await here.read(here.window(600))
        assert busy.value.retry_after_seconds is None
        assert here.platform.mishaps_happened == 3


async def test_the_clock_is_asked_past_an_open_breaker() -> None:
    """A cycle does not fail for want of a time because requests for orders fail; the answer closes the breaker."""
    async with running_connector(kind="plain", **ORDERS, faults=PlatformFaults(errors=1)) as here:
        window = here.window(600)
        for _ in range(permits.BREAKER_FAILURES // 3):
            with pytest.raises(PlatformBusy):
                await here.read(window)
        with pytest.raises(PlatformBusy, match="is not called for"):
            await here.read(window)
        here.platform.set(here.platform.market.scenario.model_copy(update={"faults": PlatformFaults()}))
        await here.connector.fetch_platform_time()
        assert await here.read(window)


async def test_a_trial_that_is_cancelled_while_it_waits_for_its_permit_is_left_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent: the platform would get no request for as long as the breaker stays open."""
    monkeypatch.setattr(permits, "BREAKER_FAILURES", 3)
    monkeypatch.setattr(permits, "BREAKER_SECONDS", 0.3)
    async with running_connector(kind="plain", **ORDERS, faults=PlatformFaults(errors=1, only_first=3)) as here:
        window = here.window(600)
        with pytest.raises(PlatformBusy):
            await here.read(window)
        await asyncio.sleep(0.5)
        with monkeypatch.context() as patch:
            patch.setattr(here.limiter, "take_all_or_none", lambda *_: asyncio.Event().wait())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(here.read(window), 0.05)
        assert await here.read(window)


@pytest.mark.parametrize(("kind", "told"), [("plain", 45), ("taobao", 45), ("shopify", 45), ("woocommerce", 45)])
async def test_a_long_wait_that_is_asked_for_is_told(kind: Kind, told: float) -> None:
    """At once, without another try: Retry-After, or Taobao's words."""
    async with running_connector(kind=kind, **ORDERS, faults=PlatformFaults(busy=1, busy_seconds=told)) as here:
        with pytest.raises(PlatformBusy, match="Ask again later") as busy:
            await here.read(here.window(600))
        assert busy.value.retry_after_seconds == told
        assert here.platform.mishaps_happened == 1


async def test_a_busy_answer_tells_no_time() -> None:
    """It may be the clock of a gateway in between; the answer says when to come back."""
    async with running_connector(kind="shopify", **ORDERS, limits=Limits(per_day=1)) as here:
        await here.connector.fetch_platform_time()
        with pytest.raises(PlatformBusy) as busy:
            await here.connector.fetch_platform_time()
        assert 80_000 < (busy.value.retry_after_seconds or 0) <= 86_401


async def test_a_platform_that_names_no_wait_has_one_in_its_record() -> None:
    """Amazon only says that its quota is used up."""
    async with running_connector(kind="amazon", **ORDERS, faults=PlatformFaults(busy=1)) as here:
        with pytest.raises(PlatformBusy, match="QuotaExceeded") as busy:
            await here.read(here.window(600))
        assert busy.value.retry_after_seconds == 60


async def test_a_rate_that_the_platform_enforces_is_sat_out_when_it_is_short() -> None:
    """A second's wait is no reason to begin a window anew."""
    async with running_connector(**ORDERS, limits=Limits(per_second=20, burst=1)) as here:
        window = here.window(600)
        assert checker.check(here.truth(window), newest_copies(await here.read(window))).is_clean
        assert here.platform.stats()["refused"] > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_credentials_that_expire_are_renewed_once(kind: Kind) -> None:
    """In the middle of a walk, which goes on where it was."""
    async with running_connector(
        kind=kind, orders=6_000, span_seconds=3_600, faults=PlatformFaults(token_requests=3)
    ) as here:
        window = here.window(600)
        assert checker.check(here.truth(window), newest_copies(await here.read(window))).is_clean
        assert here.renewals[0] is False
        assert here.renewals.count(False) == 1
        assert True in here.renewals


@pytest.mark.parametrize("kind", KINDS)
async def test_credentials_that_stay_expired_are_told_so(kind: Kind) -> None:
    """The reference is read a second time, not a third."""
    async with running_connector(kind=kind, **ORDERS, faults=PlatformFaults(token_dead=True)) as here:
        with pytest.raises(CredentialsRefused, match="Renew what the reference"):
            await here.read(here.window(600))
        assert here.renewals == [False, True]


@pytest.mark.parametrize("kind", ["shopify", "amazon"])
@pytest.mark.parametrize("page", [1, 2, 3])
async def test_a_page_that_leads_to_itself_is_a_lie(kind: Kind, page: int) -> None:
    """The first repetition ends the reading; it does not go in a circle."""
    async with running_connector(
        kind=kind, orders=6_000, span_seconds=3_600, faults=PlatformFaults(repeat_token_at=page)
    ) as here:
        with pytest.raises(InconsistentAnswers, match="came twice"):
            await here.read(here.window(3_000))
        assert here.platform.stats()["requests"] <= page + 2


@pytest.mark.parametrize("kind", ["plain", "taobao", "pinduoduo", "woocommerce"])
async def test_a_page_number_that_is_not_heeded_is_a_lie(kind: Kind) -> None:
    """Page after page the same orders."""
    async with running_connector(
        kind=kind, orders=6_000, span_seconds=3_600, faults=PlatformFaults(ignore_page=True)
    ) as here:
        with pytest.raises(InconsistentAnswers, match="the very same orders"):
            await here.read(here.window(1_200))


async def test_pages_without_orders_do_not_go_on_for_ever() -> None:
    """A platform that always has more is left."""
    read: list[int] = []

    async def endless(place: int, number: int) -> pagination.PageWithNextToken:
        read.append(number)
        return pagination.PageWithNextToken(OrderPage(place, [], b"{}", datetime.now(UTC), None, 0, 0), has_more=True)

    with pytest.raises(InconsistentAnswers, match="101 pages without an order"):
        async for _ in pagination.iterate_numbered_pages(endless, PLAIN.paging, 0, lambda: True):
            pass
    assert read == list(range(1, 102))


@pytest.mark.parametrize("off", [-40, 40])
async def test_a_wrong_total_hides_no_page(off: int) -> None:
    """Too low: what comes after the last page is read, too. Too high: the last pages are empty."""
    async with running_connector(kind="taobao", **ORDERS, faults=PlatformFaults(total_off=off)) as here:
        window = here.window(600)
        pages = await here.read(window)
        assert checker.check(here.truth(window), newest_copies(pages)).is_clean
        assert await here.connector.fetch_row_count(window) != len(list_orders(pages))


async def test_a_page_that_leaves_an_order_out_shows_in_the_total() -> None:
    """The connector returns what it received; the confirmation compares totals and orders."""
    async with running_connector(**ORDERS, faults=PlatformFaults(drop_share=1)) as here:
        window = here.window(600)
        pages = await here.read(window)
        assert len(list_orders(pages)) == len(here.truth(window)) - sum(bool(page.orders) for page in pages)
        assert {page.total for page in pages} == {len(here.truth(window))}


@pytest.mark.parametrize("link", ["http://127.0.0.2:{port}/steal", "https://127.0.0.1:{port}/", "//127.0.0.1:1/"])
async def test_a_link_to_another_host_is_not_followed(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would carry our credentials there."""
    async with running_connector(kind="shopify", **ORDERS) as here:
        port = here.address.rpartition(":")[2].partition("/")[0]
        monkeypatch.setattr(pagination, "find_next_link", lambda headers: link.format(port=port))
        with pytest.raises(InconsistentAnswers, match="Only its own address"):
            await here.read(here.window(600))
        assert here.platform.calls["told"] == 2, "the count and one page"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (plain(rows={"list": "$.rows"}), r"without a list at \$\.rows"),
        (plain(rows={"id": "$.missing"}), r"nothing at \$\.missing"),
        (plain(rows={"id": "$.total"}), "got `float`"),
        (plain(rows={"modified": "$.status"}), "Mend its record"),
        (plain(rows={"list": "$.page"}), "something unexpected"),
    ],
)
async def test_rows_that_cannot_be_read_are_not_left_out(record: Capability, words: str) -> None:
    """A window with an unreadable order is not complete."""
    async with running_connector(record, **ORDERS) as here:
        with pytest.raises(InconsistentAnswers, match=words):
            await here.read(here.window(600))


REFUSED: list[tuple[Kind, Capability, str]] = [
    (
        "plain",
        plain(query={"path": "/nowhere"}, errors={"code": "$.error.code", "message": "$.error.message"}),
        "answered 404, code refused: there is nothing at /nowhere. Correct",
    ),
    (
        "shopify",
        SHOPIFY.model_copy(update={"query": SHOPIFY.query.model_copy(update={"parameters": {}})}),
        "answered 400: .*of any status only",
    ),
]


@pytest.mark.parametrize(("kind", "record", "words"), REFUSED, ids=lambda value: str(value)[:20])
async def test_a_request_that_is_refused_says_why(kind: Kind, record: Capability, words: str) -> None:
    """In the platform's own words; asking again would not help."""
    async with running_connector(record, kind=kind, **ORDERS) as here:
        with pytest.raises(PlatformRefused, match=words):
            await here.read(here.window(600))


@pytest.mark.parametrize("seconds", [60, 2_000])
async def test_windows_that_a_platform_does_not_answer_are_refused(seconds: float) -> None:
    """Pinduoduo: too young, or too long; an error with status 200 is an error."""
    async with running_connector(kind="pinduoduo", **ORDERS) as here:
        with pytest.raises(PlatformRefused, match="code 10001"):
            await here.read(here.window(seconds, until_seconds_ago=0 if seconds < 100 else 300))


async def test_nobody_answers() -> None:
    """A platform that is down is busy, as far as we know."""
    async with running_connector(**ORDERS, address="http://127.0.0.1:9") as here:
        with pytest.raises(PlatformBusy, match="No connection"):
            await here.read(here.window(600))


async def test_a_success_without_a_body_is_a_bad_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next answer may be right: no permission and no address has to be mended for it."""
    async with running_connector(**ORDERS) as here:
        monkeypatch.setattr(here.platform, "answer", lambda _: (Reply(b"", 204), None))
        with pytest.raises(InconsistentAnswers, match="not even an empty one"):
            await here.read(here.window(600))


SECRET = 'a/b+c "d" e'


@pytest.mark.parametrize(
    "echo",
    [SECRET, json.dumps(SECRET)[1:-1], json.dumps(SECRET)[1:-1].replace("/", "\\/"), quote_plus(SECRET), "{header}"],
)
async def test_a_platform_that_repeats_secrets_is_quoted_without_them(
    echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were sent, escaped, or in the header that carries them; administrators and histories get the fault."""
    async with running_connector(WOOCOMMERCE, kind="woocommerce") as here:

        async def read_credentials(renew: bool) -> Credentials:
            return Credentials(key="key-1", secret=SecretStr(SECRET))

        def answer(request: StandInRequest) -> tuple[Reply, None]:
            text = echo.replace("{header}", request.headers["Authorization"])
            return Reply(f"You sent {text}.".encode(), 418), None

        monkeypatch.setattr(here.connector._client._credentials, "_read_credentials", read_credentials)
        monkeypatch.setattr(here.platform, "answer", answer)
        with pytest.raises(PlatformRefused, match=r"You sent (Basic )?\[secret\]"):
            await here.read(here.window(600))
