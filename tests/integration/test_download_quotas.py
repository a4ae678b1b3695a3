"""Quotas and idempotency keys through the API, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from pydantic import Field

from api import downloads, projects
from api.downloads import creation, quotas
from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess, Routes
from domain.downloads.models import DownloadSpec
from domain.faults import Invalid
from domain.quotas import DownloadQuotaLimits, QuotaLimits
from infra.database import Database, Session
from infra.settings import Settings
from stores.downloads.quotas import release_slots_and_count_file_size, take_active_slots_beyond_quota
from tests.support.api import ApiClient, Reply, running_api

pytestmark = pytest.mark.stack

PURGE_UNLOCKED = "DELETE FROM idempotency_keys WHERE ctid IN (SELECT ctid FROM idempotency_keys FOR UPDATE SKIP LOCKED)"
PROJECT = QuotaLimits(
    downloads_per_minute=6, downloads_active=4, download_bytes_per_day=1_000, download_rows_per_day=100
)
OPERATOR = DownloadQuotaLimits(downloads_per_minute=5, active=2, bytes_per_day=500, rows_per_day=50)


def lower_quotas(settings: Settings) -> Settings:
    """The same settings with small quotas."""
    downloads = settings.downloads.model_copy(update={"operator_quotas": OPERATOR})
    return settings.model_copy(update={"downloads": downloads, "quotas": PROJECT})


toys = Routes("toys", "Submissions without a download.")


class Submission(Request):
    """What a download is counted by."""

    task_id: str = Field(max_length=20)
    operator_id: str | None = Field(default=None, max_length=20)
    is_taken_again: bool = False


class Admitted(Response):
    """It was let in."""


@toys.post("/toys", access=RouteAccess.PROJECT)
async def submit(call: Call, body: Submission) -> Admitted:
    """Admit a download."""
    order = DownloadSpec(
        task_id=body.task_id,
        project_id=call.project_id,
        operator_id=body.operator_id,
        file_name="x.csv",
    )
    await quotas.consume_quotas_and_set_headers(call, order)
    return Admitted()


@toys.post("/toys/late", access=RouteAccess.PROJECT)
async def submit_late(call: Call, body: Submission) -> Admitted:
    """Take up a download whose start hangs until the request's time is over, though it may have begun."""
    order = DownloadSpec(task_id=body.task_id, project_id=call.project_id, file_name="x.csv")
    with suppress(TimeoutError):
        async with quotas.consume_quotas_for_start(call, order):
            # Not within the time: a busy database takes longer than that.
            if body.is_taken_again:
                await take_active_slots_beyond_quota(call.services.database, order)
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()
    return Admitted()


class QuotaCaller:
    """A project that submits."""

    def __init__(self, api_client: ApiClient, database: Database, project_id: str, key: str) -> None:
        self.api_client, self.database, self.project_id, self.key = api_client, database, project_id, key

    async def submit(self, task_id: str, operator_id: str | None = None) -> Reply:
        """Submit a download."""
        body = {"task_id": task_id, "operator_id": operator_id}
        return await self.api_client.ask("POST", "/toys", key=self.key, json=body)

    async def finish(
        self, task_id: str, operator_id: str | None = None, file_bytes: int = 0, file_rows: int = 0
    ) -> None:
        """Finish a download, as its last activity does."""
        sizes = {"file_bytes": file_bytes, "file_rows": file_rows}
        await release_slots_and_count_file_size(self.database, self.project_id, operator_id, task_id, **sizes)


@pytest.fixture
async def caller(settings: Settings, database: Database) -> AsyncIterator[QuotaCaller]:
    """A project with small quotas."""
    async with running_api(lower_quotas(settings), [projects.routes, toys]) as api_client:
        yield QuotaCaller(api_client, database, *await api_client.make_project())


def parse_quota_header(reply: Reply, name: str) -> dict[str, dict[str, int]]:
    """A RateLimit header: for each quota its numbers."""
    header = reply.headers[name]
    assert re.fullmatch(r'("[a-z_]+"(;[a-z]+=(\d+|"[a-z-]+"))+(, |$))+', header)
    return {
        item.split(";")[0].strip('"'): {word: int(n) for word, n in re.findall(r";([a-z]+)=(\d+)", item)}
        for item in header.split(", ")
    }


async def test_an_answer_tells_how_the_quotas_stand(caller: QuotaCaller) -> None:
    """Policies and what is left of them, of the project and of the operator, by the draft's names."""
    reply = await caller.submit("a", "op")
    assert reply.status == 200
    assert reply.headers["RateLimit-Policy"] == (
        '"downloads_per_minute";q=6;w=60, "downloads_active";q=4;qu="concurrent-requests", '
        '"download_bytes_per_day";q=1000;qu="content-bytes";w=86400, "download_rows_per_day";q=100;qu="rows";w=86400, '
        '"operator_downloads_per_minute";q=5;w=60, "operator_downloads_active";q=2;qu="concurrent-requests", '
        '"operator_download_bytes_per_day";q=500;qu="content-bytes";w=86400, '
        '"operator_download_rows_per_day";q=50;qu="rows";w=86400'
    )
    left = {name: numbers["r"] for name, numbers in parse_quota_header(reply, "RateLimit").items()}
    assert left == {
        "downloads_per_minute": 5,
        "downloads_active": 3,
        "download_bytes_per_day": 1_000,
        "download_rows_per_day": 100,
        "operator_downloads_per_minute": 4,
        "operator_downloads_active": 1,
        "operator_download_bytes_per_day": 500,
        "operator_download_rows_per_day": 50,
    }
    assert 58 <= parse_quota_header(reply, "RateLimit")["downloads_per_minute"]["t"] <= 61


async def test_who_names_no_operator_is_counted_as_the_project(caller: QuotaCaller) -> None:
    """Other headers are left out."""
    reply = await caller.submit("a")
    names = {"downloads_per_minute", "downloads_active", "download_bytes_per_day", "download_rows_per_day"}
    assert set(parse_quota_header(reply, "RateLimit")) == names


async def test_an_operator_has_so_many_active_downloads(caller: QuotaCaller) -> None:
    """The third is refused with all that a program or a person needs; another operator is let in; an end lets in."""
    for task_id in ("a", "b"):
        assert (await caller.submit(task_id, "op")).status == 200
    refused = await caller.submit("c", "op")
    assert (refused.status, refused.code) == (429, "quota_exceeded")
    assert refused.body["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert refused.body["violated-policies"] == ["operator_downloads_active"]
    assert refused.body["detail"] == (
        "This operator has 2 downloads that are not finished, as many as it may. "
        "Wait until a download ends, or cancel one; ask again in 5 seconds."
    )
    assert refused.headers["Retry-After"] == "5"
    assert parse_quota_header(refused, "RateLimit")["operator_downloads_active"] == {"r": 0}
    assert parse_quota_header(refused, "RateLimit")["downloads_per_minute"]["r"] == 4

    assert (await caller.submit("c", "other")).status == 200
    await caller.finish("a", "op")
    assert (await caller.submit("d", "op")).status == 200


async def test_a_start_that_is_cut_off_leaves_its_slot_free(caller: QuotaCaller) -> None:
    """Else a hanging engine would use up the slots of callers that try again."""
    for task_id in "abcde":
        reply = await caller.api_client.ask("POST", "/toys/late", key=caller.key, json={"task_id": task_id})
        assert reply.status == 200, reply.body
    left = parse_quota_header(await caller.submit("f"), "RateLimit")["downloads_active"]["r"]
    assert left == PROJECT.downloads_active - 1


async def test_two_starts_of_one_download_that_are_cut_off_leave_its_slot_free(caller: QuotaCaller) -> None:
    """A request is repeated, with its key, while the first one hangs: neither has begun the download."""
    late = [caller.api_client.ask("POST", "/toys/late", key=caller.key, json={"task_id": "a"}) for _ in range(2)]
    assert [reply.status for reply in await asyncio.gather(*late)] == [200, 200]
    left = parse_quota_header(await caller.submit("b"), "RateLimit")["downloads_active"]["r"]
    assert left == PROJECT.downloads_active - 1


async def test_a_start_that_is_cut_off_leaves_the_slot_of_an_earlier_one_taken(caller: QuotaCaller) -> None:
    """Of two retries at a time, the one that fails must not free the slot of the download that the other started."""
    await caller.submit("a")
    await caller.api_client.ask("POST", "/toys/late", key=caller.key, json={"task_id": "a"})
    left = parse_quota_header(await caller.submit("b"), "RateLimit")["downloads_active"]["r"]
    assert left == PROJECT.downloads_active - 2


async def test_a_start_that_is_cut_off_leaves_the_slot_that_was_taken_again_since(caller: QuotaCaller) -> None:
    """The download began all the same, by this request or by another one: its file is counted when it is there."""
    body = {"task_id": "a", "is_taken_again": True}
    await caller.api_client.ask("POST", "/toys/late", key=caller.key, json=body)
    left = parse_quota_header(await caller.submit("b"), "RateLimit")["downloads_active"]["r"]
    assert left == PROJECT.downloads_active - 2

    await caller.finish("a", file_bytes=700)
    assert parse_quota_header(await caller.submit("c"), "RateLimit")["download_bytes_per_day"]["r"] == 300


async def test_a_project_submits_so_often_a_minute(caller: QuotaCaller) -> None:
    """Whether they run or not; the answer says when the first comes back, and refusals cost nothing."""
    for n in range(6):
        assert (await caller.submit(f"t{n}")).status == 200
        await caller.finish(f"t{n}")
    for _ in range(3):
        refused = await caller.submit("late")
        assert refused.body["violated-policies"] == ["downloads_per_minute"]
        assert "This project started 6 downloads within a minute, as many as it may. Ask again in " in str(refused.body)
        state = parse_quota_header(refused, "RateLimit")["downloads_per_minute"]
        assert state["r"] == 0
        assert 0 < state["t"] <= int(refused.headers["Retry-After"]) <= 61


async def test_bytes_are_counted_once_and_close_the_day(caller: QuotaCaller) -> None:
    """A file counts when it is there, also when its end is written twice; then that operator waits."""
    await caller.submit("a", "op")
    for _ in range(2):
        await caller.finish("a", "op", file_bytes=700)
    assert parse_quota_header(await caller.submit("b"), "RateLimit")["download_bytes_per_day"]["r"] == 300

    refused = await caller.submit("c", "op")
    assert refused.body["violated-policies"] == ["operator_download_bytes_per_day"]
    assert refused.body["detail"] == (
        "This operator made files of 500 bytes within a day, as much as it may. Ask again in 25 hours."
    )
    assert 23 * 3600 < int(refused.headers["Retry-After"]) <= 25 * 3600


async def test_rows_close_the_day(caller: QuotaCaller) -> None:
    """A file of many short rows is within the bytes, and beyond the rows."""
    await caller.submit("a")
    await caller.finish("a", file_bytes=10, file_rows=100)
    refused = await caller.submit("b")
    assert (refused.status, refused.body["violated-policies"]) == (429, ["download_rows_per_day"])
    assert "made files of 100 rows within a day" in refused.body["detail"]


async def test_the_same_download_is_counted_once(caller: QuotaCaller) -> None:
    """A request that is repeated while its download is active costs nothing, even when nothing is left."""
    for task_id in ("a", "b"):
        await caller.submit(task_id, "op")
    again = await caller.submit("a", "op")
    assert again.status == 200
    assert parse_quota_header(again, "RateLimit")["downloads_per_minute"]["r"] == 4


async def test_a_download_that_runs_unasked_holds_its_slot(caller: QuotaCaller) -> None:
    """A download that is started without the API counts like any other, also beyond the limit, and its file is counted
    too."""
    for task_id in ("a", "b"):
        await caller.submit(task_id, "op")
    order = DownloadSpec(task_id="c", project_id=caller.project_id, operator_id="op", file_name="x.csv")
    for _ in range(2):
        await take_active_slots_beyond_quota(caller.database, order)
    await caller.finish("a", "op")
    assert (await caller.submit("d", "op")).body["violated-policies"] == ["operator_downloads_active"]
    await caller.finish("c", "op", file_bytes=300)
    assert (
        parse_quota_header(await caller.submit("d", "op"), "RateLimit")["operator_download_bytes_per_day"]["r"] == 200
    )


async def test_projects_do_not_feel_each_other(caller: QuotaCaller) -> None:
    """One that used everything up leaves everything to the next, operators of the same name included."""
    for n in range(5):
        await caller.submit(f"t{n}", "op")
    other = QuotaCaller(caller.api_client, caller.database, *await caller.api_client.make_project("other"))
    reply = await other.submit("t0", "op")
    assert parse_quota_header(reply, "RateLimit")["downloads_per_minute"]["r"] == 5
    assert parse_quota_header(reply, "RateLimit")["operator_downloads_active"]["r"] == 1


async def test_those_who_submit_at_once_are_counted_right(caller: QuotaCaller) -> None:
    """Forty requests at the same time: four slots, four downloads."""
    replies = await asyncio.gather(*(caller.submit(f"t{n}") for n in range(40)))
    assert sorted(reply.status for reply in replies) == [200] * 4 + [429] * 36


class SubmissionRequest(Request):
    """What a key is sent with."""

    name: str = "x"
    size: int = 1


async def test_a_key_stands_for_the_first_download_sent_with_it(database: Database) -> None:
    """Twenty requests at once, each with a download of its own: all return the same one."""
    mark = creation.fingerprint_request(SubmissionRequest())
    owners = await asyncio.gather(
        *(creation.claim_idempotency_key(database, "prj", "key-1", mark, f"dl_{n}") for n in range(20))
    )
    assert len(set(owners)) == 1
    assert await creation.claim_idempotency_key(database, "prj", "key-1", mark, "dl_late") == owners[0]
    assert await creation.claim_idempotency_key(database, "prj", "key-2", mark, "dl_2") == "dl_2"
    assert await creation.claim_idempotency_key(database, "other", "key-1", mark, "dl_3") == "dl_3"


async def test_a_key_with_another_body_is_refused(database: Database) -> None:
    """The sentence says what to do; what the body says counts, not how."""
    key = "550e8400-e29b-41d4-a716-446655440000"
    await creation.claim_idempotency_key(
        database, "prj", key, creation.fingerprint_request(SubmissionRequest(name="a", size=1)), "dl_1"
    )
    same = creation.fingerprint_request(SubmissionRequest.model_validate_json('{"size": 1, "name": "a"}'))
    left_out = creation.fingerprint_request(SubmissionRequest(name="a"))
    assert await creation.claim_idempotency_key(database, "prj", key, same, "dl_2") == "dl_1"
    assert await creation.claim_idempotency_key(database, "prj", key, left_out, "dl_2") == "dl_1"
    with pytest.raises(Invalid, match=r"was sent before with another body\. Send a new key") as refusal:
        await creation.claim_idempotency_key(
            database, "prj", key, creation.fingerprint_request(SubmissionRequest(name="b")), "dl_3"
        )
    assert refusal.value.record.code == "idempotency_key_reused"


async def test_who_only_asks_is_told_how_the_quotas_stand(settings: Settings, database: Database) -> None:
    """Usage is shown for the project and for one operator; asking uses nothing."""
    async with running_api(lower_quotas(settings), [projects.routes, toys, downloads.routes]) as api_client:
        caller = QuotaCaller(api_client, database, *await api_client.make_project())
        await caller.submit("dl_1", "ann")
        await caller.submit("dl_2")
        await caller.finish("dl_2", file_bytes=1_300, file_rows=30)
        for _ in range(2):
            reply = await api_client.ask("GET", "/v1/downloads/quotas?operator_id=ann", key=caller.key)
        stranger = await api_client.ask("GET", "/v1/downloads/quotas", key=(await api_client.make_project("other"))[1])

    assert reply.status == 200, reply.body
    used = {quota["name"]: (quota["used"], quota["limit"]) for quota in reply.body["items"]}
    assert used == {
        "downloads_per_minute": (2, 6),
        "downloads_active": (1, 4),
        "download_bytes_per_day": (1_300, 1_000),
        "download_rows_per_day": (30, 100),
        "operator_downloads_per_minute": (1, 5),
        "operator_downloads_active": (1, 2),
        "operator_download_bytes_per_day": (0, 500),
        "operator_download_rows_per_day": (0, 50),
    }
    back = {quota["name"]: quota["resets_in_seconds"] for quota in reply.body["items"]}
    # What is spent comes back late by a grain at most, which is a second of a minute.
    assert 0 < back["downloads_per_minute"] <= 61
    assert back["downloads_active"] is back["operator_download_bytes_per_day"] is None
    assert [quota["used"] for quota in stranger.body["items"]] == [0, 0, 0, 0]


async def test_a_claim_holds_though_its_key_is_purged_at_that_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Housekeeping may delete the row between two statements."""
    mark = creation.fingerprint_request(SubmissionRequest())
    await creation.claim_idempotency_key(database, "prj", "key-1", mark, "dl_1")
    housekeeping = Database(database.settings)
    run = Session.exec

    async def run_and_purge(self: Session, *arguments: Any, **options: Any) -> Any:
        result = await run(self, *arguments, **options)
        async with housekeeping.connection() as connection:
            await connection.execute(PURGE_UNLOCKED)
        return result

    monkeypatch.setattr(Session, "exec", run_and_purge)
    assert await creation.claim_idempotency_key(database, "prj", "key-1", mark, "dl_2") == "dl_1"
    await housekeeping.close()
