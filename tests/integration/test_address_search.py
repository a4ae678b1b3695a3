"""Operators look into the log, its history and the quarantine, and see how old what is not done is."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from api.addresses import overview
from domain.addresses.messages import MessageState, Topic
from infra.address_settings import AddressSettings
from infra.database import Database
from infra.settings import Settings
from stores.addresses import cycle
from stores.tables.addresses import AddressMessage, ArchivedMessage, QuarantinedMessage
from tests.support.address_world import CycleHarness
from tests.support.api import ApiClient, Reply, running_api
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

BEGIN = datetime(2026, 11, 20, 12, tzinfo=UTC)
PATH = "/v1/addresses/messages"
MISSING = {"kind": "missing", "module": "im", "uprn": 7, "missing": [7], "unsure": ["od"]}

# What each message is, but for its number, its UPRN and its minute, which follow from its place.
LIVE: Mapping[str, Mapping[str, Any]] = {
    "new": {"topic": Topic.CREATE_UPDATE},
    "taken": {"topic": Topic.CREATE_UPDATE, "proc_flag": "P"},
    "swap-retried": {"topic": Topic.SWAP, "uprn_2": 7, "proc_flag": "N", "retry_times": 1},
    "failed": {"topic": Topic.DELETE, "proc_flag": "N", "retry_times": 1, "next_attempt_at": BEGIN, "im_ack": "N"},
    "given-up": {
        "topic": Topic.SWAP,
        "uprn_2": 7,
        "proc_flag": "N",
        "retry_times": 2,
        "next_attempt_at": BEGIN,
        "ed_ack": "Y",
        "im_ack": "N",
        "im_stack_trace": "There is no address with UPRN 7.",
        "wait_reason": MISSING,
    },
}
DONE: Mapping[str, Mapping[str, Any]] = {
    "done": {"topic": Topic.CREATE_UPDATE, "proc_flag": "Y"},
    "superseded": {"topic": Topic.DELETE, "proc_flag": "Y", "superseded_by": 4711, "im_ack": "N"},
}


@dataclass(frozen=True)
class MessageBrowser:
    """The API as an operator reads it."""

    api_client: ApiClient
    ids: Mapping[str, int]

    async def get(self, path: str = PATH, **query: str) -> Reply:
        """Ask for something."""
        return await self.api_client.as_admin("GET", path, params=query)

    async def list_numbers(self, **query: str) -> list[str]:
        """Which messages are listed, in order."""
        reply = await self.get(**query)
        assert reply.status == 200, reply.body
        return [each["msg_no"] for each in reply.body["items"]]


@pytest.fixture
async def browser(settings: Settings, database: Database) -> AsyncIterator[MessageBrowser]:
    """A log with a message of every kind, a minute between each."""
    ids = {}
    every = [*LIVE.items(), *DONE.items()]
    for place, (number, columns) in enumerate(every):
        said: dict[str, Any] = {"uprn_1": 100 + place, "msg_no": number, "createdat": BEGIN + timedelta(minutes=place)}
        table = {"id": 10_000 + place} if number in DONE else {}
        row = (ArchivedMessage if number in DONE else AddressMessage).model_validate(
            {**said, **table, **columns, "payload": {"text": "Zürich 1.10"}, "archived_at": BEGIN}
        )
        async with database.session() as session:
            session.add(row)
        ids[number] = row.id or 0
    async with running_api(settings) as api_client:
        yield MessageBrowser(api_client, ids)


SEARCHES: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["given-up", "failed", "swap-retried", "taken", "new"]),
    ({"topic": "swapDeleteInfinityAddress"}, ["given-up", "swap-retried"]),
    ({"uprn": "7"}, ["given-up", "swap-retried"]),
    ({"uprn": "100"}, ["new"]),
    ({"state": "waiting"}, ["new"]),
    ({"state": "processing"}, ["swap-retried", "taken"]),
    ({"state": "failed"}, ["failed"]),
    ({"state": "given_up"}, ["given-up"]),
    ({"state": "done"}, []),
    ({"module": "im"}, ["given-up", "failed"]),
    ({"module": "im", "topic": "deleteInfinityAddress", "state": "failed"}, ["failed"]),
    ({"module": "ed"}, []),
    ({"kind": "missing"}, ["given-up"]),
    ({"created_after": "2026-11-20T12:02:00Z", "created_before": "2026-11-20T12:04:00Z"}, ["failed", "swap-retried"]),
    ({"history": "true"}, ["superseded", "done"]),
    ({"history": "true", "state": "done", "uprn": "105"}, ["done"]),
    ({"history": "true", "module": "im", "created_after": "2026-11-20T12:00:00Z"}, ["superseded"]),
]


async def test_messages_are_found_by_what_they_say_and_how_they_stand(browser: MessageBrowser) -> None:
    """By topic, UPRN, state, module, reason and time, those received last first; done ones in the history."""
    for query, numbers in SEARCHES:
        assert await browser.list_numbers(**query) == numbers, query


@pytest.mark.parametrize("query", [{}, {"topic": "swapDeleteInfinityAddress"}, {"uprn": "7"}, {"module": "im"}])
async def test_pages_follow_each_other(browser: MessageBrowser, query: dict[str, str]) -> None:
    """One message a page, and all of them in the end."""
    asked, numbers = {**query, "limit": "1"}, []
    while True:
        reply = await browser.get(**asked)
        numbers += [each["msg_no"] for each in reply.body["items"]]
        if reply.body["next_cursor"] is None:
            break
        asked["cursor"] = reply.body["next_cursor"]

    assert numbers == await browser.list_numbers(**query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"history": "true", "state": "failed"}, "never in the history"),
        ({"history": "true", "topic": "deleteInfinityAddress"}, "needs a uprn or created_after"),
        ({"history": "true", "module": "im"}, "needs a uprn or created_after"),
        ({"state": "waiting", "module": "im"}, "has not failed"),
        ({"state": "lost"}, "given_up"),
        ({"uprn": "0"}, "uprn"),
    ],
)
async def test_a_search_that_cannot_be_answered_is_refused(
    browser: MessageBrowser, query: dict[str, str], said: str
) -> None:
    """The history is not read from its beginning to its end."""
    reply = await browser.get(**query)

    assert reply.status == 422
    assert said in str(reply.body)


async def test_a_message_is_shown_with_all_that_is_known(browser: MessageBrowser) -> None:
    """What was published, word by word; what each module said; and why it waits."""
    reply = await browser.get(f"{PATH}/{browser.ids['given-up']}")

    assert (reply.status, reply.body["state"], reply.body["payload"]) == (
        200,
        "given_up",
        '{"text": "Z\\u00fcrich 1.10"}',
    )
    assert {module: (each["ack"], each["trace"]) for module, each in reply.body["acks"].items()} == {
        "ed": ("Y", None),
        "im": ("N", "There is no address with UPRN 7."),
        "wfm": (None, None),
        "od": (None, None),
    }
    assert reply.body["waits"] == {**MISSING, "modules": [], "behind": None, "paused": []}
    assert reply.body["actions"] == []


async def test_a_done_message_is_found_in_the_history(browser: MessageBrowser) -> None:
    """It says which later one made it needless, and when it went there."""
    reply = await browser.get(f"{PATH}/{browser.ids['superseded']}")

    assert (reply.body["state"], reply.body["superseded_by"]) == ("done", 4711)
    assert reply.body["archived_at"] == "2026-11-20T12:00:00Z"
    assert reply.body["supersedes"] == []
    missing = await browser.get(f"{PATH}/4711")
    assert (missing.status, missing.code) == (404, "not_found")


async def test_a_message_is_followed_from_its_failure_to_its_end(settings: Settings) -> None:
    """A swap whose side is missing says so; once that is there, a retry makes it done."""
    world = CycleHarness(settings.database)
    async with running_api(settings) as api_client:
        browser = MessageBrowser(api_client, {})
        await world.begin()
        await world.publish([(Topic.CREATE_UPDATE, "a", {"uprn": 1, "address_id": 1, "record": {}})])
        await world.publish([(Topic.SWAP, "s", {"uprn_1": 1, "uprn_2": 2})])
        for _ in range(3):
            await world.cycle()
        [waits] = (await browser.get(state="given_up")).body["items"]
        await world.publish([(Topic.CREATE_UPDATE, "b", {"uprn": 2, "address_id": 2, "record": {}})])
        await world.cycle()

        signed = {"who": "ann", "reason": "the side is there"}
        retried = await api_client.as_admin("POST", f"{PATH}/{waits['message_id']}/retry", json=signed)
        await world.cycle()
        done = (await browser.get(f"{PATH}/{waits['message_id']}")).body
    await world.database.close()

    assert (waits["waits"]["kind"], waits["waits"]["uprn"], waits["retry_times"]) == ("missing", 2, 2)
    assert (retried.body["state"], retried.body["retry_times"]) == ("failed", 0)
    assert (done["state"], {each["ack"] for each in done["acks"].values()}) == ("done", {"Y"})
    assert [(each["who"], each["action"]) for each in done["actions"]] == [("ann", "retry")]


async def test_a_message_names_those_that_it_stands_for(settings: Settings) -> None:
    """An operator who skips it should know, because they go with it."""
    world = CycleHarness(settings.database)
    await world.begin()
    said = [(topic, str(n), {"uprn": 1, "address_id": 1, "record": {}}) for n, topic in enumerate(Topic) if n]
    await world.publish([said[0], (Topic.CREATE_UPDATE, "other", {"uprn": 2, "address_id": 2, "record": {}}), said[1]])
    await world.cycle()
    ids = {row["msg_no"]: id_ for id_, row in (await world.rows()).items()}
    async with running_api(settings) as api_client:
        last = (await MessageBrowser(api_client, ids).get(f"{PATH}/{ids['2']}")).body
    await world.database.close()

    assert last["supersedes"] == [ids["1"]]


async def test_what_is_not_done_is_counted_with_its_age(browser: MessageBrowser) -> None:
    """Every topic in every state, the oldest of each, and where it failed."""
    reply = await browser.get("/v1/addresses/figures")

    figures = {(each["topic"], each["state"]): each for each in reply.body["messages"]}
    assert len(figures) == 12
    assert {key: each["messages"] for key, each in figures.items() if each["messages"]} == {
        (Topic.CREATE_UPDATE, "waiting"): 1,
        (Topic.CREATE_UPDATE, "processing"): 1,
        (Topic.SWAP, "processing"): 1,
        (Topic.SWAP, "given_up"): 1,
        (Topic.DELETE, "failed"): 1,
    }
    waiting, failed = figures[Topic.CREATE_UPDATE, "waiting"], figures[Topic.DELETE, "failed"]
    assert waiting["oldest_at"] == "2026-11-20T12:00:00Z"
    age = datetime.fromisoformat(reply.body["at"]) - BEGIN
    assert waiting["oldest_seconds"] == max(0.0, age.total_seconds())
    assert failed["failed_in"] == {"ed": 0, "im": 1, "wfm": 0, "od": 0}
    assert (reply.body["quarantined"], reply.body["logical_deletes"], reply.body["removable"]) == (0, 0, 0)


async def test_counts_and_ages_are_shown_to_prometheus(browser: MessageBrowser) -> None:
    """Whether cycles run or not."""

    async def page() -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{browser.api_client.address}/metrics") as answer:
            text = await answer.text()
        return text if f'haulage_addresses_open{{state="given_up",topic="{Topic.SWAP}"}} 1.0' in text else ""

    shown = await eventually(page)

    assert f'haulage_addresses_failed_in{{module="im",topic="{Topic.SWAP}"}} 1.0' in shown
    assert f'haulage_addresses_oldest_seconds{{state="given_up",topic="{Topic.SWAP}"}} ' in shown


async def test_an_outage_of_the_database_ends_no_figures(
    browser: MessageBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages are of the moment of reading, and the next look succeeds."""
    oldest = cycle.MessageCount(Topic.SWAP, MessageState.GIVEN_UP, messages=3, oldest_at=BEGIN)
    counts = cycle.UnfinishedMessageCounts(
        BEGIN + timedelta(seconds=90), [oldest], quarantined=0, listed=0, removable=0
    )
    answers: list[Exception | cycle.UnfinishedMessageCounts] = [ConnectionResetError("no database"), counts]

    async def count(*_: object) -> cycle.UnfinishedMessageCounts:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cycle, "count_unfinished_messages", count)
    monkeypatch.setattr(overview, "GAUGE_INTERVAL_SECONDS", 0.01)
    database = Database(browser.api_client.settings.database)
    looking = asyncio.create_task(overview.update_gauges_forever(database, AddressSettings(failed_cycles_max=2)))

    async def has_gauge() -> bool:
        return bool(overview.OLDEST_GAUGE.labels(Topic.SWAP, MessageState.GIVEN_UP)._value.get() == 90)

    await eventually(has_gauge)
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    await database.close()


async def test_what_could_not_be_read_is_listed_and_shown(browser: MessageBrowser, database: Database) -> None:
    """With the reason and the very bytes, as text where they are some."""
    async with database.session() as session:
        session.add_all(
            QuarantinedMessage(
                topic=topic, msg_no=number, raw=raw, raw_bytes=len(raw), reason="It is no JSON.", created_at=BEGIN
            )
            for topic, number, raw in (
                (Topic.SWAP, "1", b"{"),
                (Topic.DELETE, "2", b"\xff"),
                (Topic.DELETE, "3", b"[]"),
            )
        )
    path = "/v1/addresses/quarantine"

    first = await browser.get(path, limit="2")
    rest = await browser.get(path, cursor=first.body["next_cursor"])
    [binary, _] = reversed((await browser.get(path, topic=Topic.DELETE)).body["items"])
    shown = [await browser.get(f"{path}/{each['quarantine_id']}") for each in (rest.body["items"][0], binary)]

    assert [each["msg_no"] for each in first.body["items"]] == ["3", "2"]
    assert [(each.body["text"], base64.b64decode(each.body["raw"])) for each in shown] == [("{", b"{"), (None, b"\xff")]
    assert shown[0].body["reason"] == "It is no JSON."
    assert (await browser.get(f"{path}/4711")).status == 404
