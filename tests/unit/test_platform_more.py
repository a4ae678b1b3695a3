"""What an answer says about further pages: in whatever words, and never taken for the end where it is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from clients.http import HttpResponse
from clients.platforms import InconsistentAnswers, PlatformConnector, client
from clients.platforms.answers import OrderParser
from clients.platforms.pagination import find_next_link
from domain.orders.access import Account
from domain.orders.capability import Capability, PagingByNumberCursorTokenOrLink
from domain.orders.windows import TimeWindow
from sims.platforms.dialects.base import Reply, StandInRequest
from sims.platforms.dialects.plain import PLAIN
from tests.support.platforms import RunningConnector, running_connector

WINDOW = TimeWindow(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 2, tzinfo=UTC))


def record(kind: PagingByNumberCursorTokenOrLink, **paging: Any) -> Capability:
    """The plain record with other pages, which says whether more follow."""
    pages = {"kind": kind, "more": "$.more", "size": 10, **paging}
    return PLAIN.model_copy(update={"total": None, "paging": PLAIN.paging.model_copy(update=pages)})


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        *[(value, True) for value in (True, 1, 250, "true", "True", "YES", " y ", "1", "250")],
        *[(value, False) for value in (False, 0, "false", "False", "no", "N", "0", "00")],
        *[(value, None) for value in (None, "", " ")],
    ],
)
def test_whether_more_follows_is_read_in_any_words(answered: Any, expected: bool | None) -> None:
    """Also as the number of what is left."""
    parser = OrderParser(record(PagingByNumberCursorTokenOrLink.NUMBER), Account("7", "shop", "http://a"))
    assert parser.parse_has_more({"more": answered}) is expected


def test_other_words_about_further_pages_are_not_taken_for_the_end() -> None:
    """The window would be cut off where they mean that there are more."""
    parser = OrderParser(record(PagingByNumberCursorTokenOrLink.NUMBER), Account("7", "shop", "http://a"))
    with pytest.raises(InconsistentAnswers, match=r"answered 'partly' at \$\.more; .* Mend `paging.more`"):
        parser.parse_has_more({"more": "partly"})


def _answer_more_without_a_lead(here: RunningConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"orders": [], "more": True}).encode()
    monkeypatch.setattr(here.platform, "answer", lambda _: (Reply(body), None))


@pytest.mark.parametrize(
    ("kind", "next_path"),
    [
        (PagingByNumberCursorTokenOrLink.CURSOR, "$.next"),
        (PagingByNumberCursorTokenOrLink.TOKEN, "$.next"),
        (PagingByNumberCursorTokenOrLink.LINK, None),
    ],
)
async def test_more_without_a_lead_to_it_is_not_the_end(
    kind: PagingByNumberCursorTokenOrLink, next_path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an answer, perhaps: what it withholds would be lost."""
    async with running_connector(record(kind, next=next_path)) as here:
        _answer_more_without_a_lead(here, monkeypatch)
        with pytest.raises(InconsistentAnswers, match="says that more orders follow, and does not lead to them") as bad:
            await here.read(WINDOW)
        assert bad.value.may_pass


NEXT = "https://shop.example/orders?page=2"


@pytest.mark.parametrize(
    "header",
    [
        f'<{NEXT}>; rel="next"',
        f"<{NEXT}>; rel=next",
        f"<{NEXT}>;Rel=Next",
        f'<{NEXT}>; rel="last next"',
        f'<{NEXT}>; title="more, and more"; rel="next"',
        f'<{NEXT}>; title="a \\" quote, here"; rel="next"; type=json',
        f'<https://shop.example/orders?page=1>; rel="prev", <{NEXT}>; rel="next"',
        f'<https://shop.example/archive>; rel="next-archive", <{NEXT}> ; rel = "next"',
    ],
)
def test_a_link_to_the_next_page_is_found(header: str) -> None:
    """However the header is written; otherwise the first page would be taken for the whole window."""
    assert find_next_link([header]) == NEXT


@pytest.mark.parametrize("header", ["", "<a>", '<a>; rel="prev"', '<a>; rel="next-archive"', '<a>; title="rel=next"'])
def test_no_other_link_is_the_next_page(header: str) -> None:
    """None of them."""
    assert find_next_link([header]) is None


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("http://{host}/p/7/orders?page=2", "/orders"),
        ("HTTP://{host}/p/7/orders?page=2", "/orders"),
        ("?page=2", "/orders"),
        ("orders?page=2", "/orders"),
        ("/p/7/orders?page=2", "/orders"),
    ],
)
async def test_a_link_is_followed_from_the_page_that_has_it(
    written: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a browser would; letters of the host may be large or small."""
    async with running_connector(record(PagingByNumberCursorTokenOrLink.LINK, more=None)) as here:
        host, seen = here.address.removeprefix("http://").partition("/")[0], list[StandInRequest]()

        def answer(request: StandInRequest) -> tuple[Reply, None]:
            seen.append(request)
            link = {"Link": f'<{written.format(host=host)}>; rel="next"'} if len(seen) == 1 else {}
            return Reply(b'{"orders":[]}', headers=link), None

        monkeypatch.setattr(here.platform, "answer", answer)
        await here.read(WINDOW)

    assert [each.path for each in seen] == ["/orders", asked]
    assert seen[1].query["page"] == "2"


async def test_the_default_port_is_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some gateways write it."""
    async with running_connector(record(PagingByNumberCursorTokenOrLink.LINK, more=None)) as here:
        asked = list[str]()

        async def get(url: str, **_: Any) -> HttpResponse:
            asked.append(url)
            link = {} if len(asked) > 1 else {"Link": '<https://Shop.example:443/v1/orders?page=2>; rel="next"'}
            return HttpResponse(200, CIMultiDictProxy(CIMultiDict(link)), b'{"orders":[]}')

        reader: client.PlatformClient = here.connector._client
        monkeypatch.setattr(reader._http, "get", get)
        monkeypatch.setattr(reader, "_account", Account("7", "shop", "https://shop.example/v1"))
        connector = PlatformConnector(reader, here.connector.capability, reader._account)
        [_ async for _ in connector.iterate_pages(WINDOW, None)]

    assert asked[1] == "https://Shop.example:443/v1/orders?page=2"
