"""Operators try failed messages again and skip them, and never what a cycle has."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import pytest

from domain.addresses.messages import Topic
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from stores.addresses import actions
from stores.addresses import cycle as cycle_store
from stores.addresses.actions import ActorWithReason
from stores.addresses.search import MessageSearchConditions
from stores.tables.addresses import AddressMessage, QuarantinedMessage
from tests.support.api import ApiClient, Reply, running_api
from tests.support.waiting import eventually
from workflows.addresses import handle

pytestmark = pytest.mark.stack

NOW = datetime.now(UTC)
SIGNED = {"who": "ann", "reason": "the module is well again"}
HOUR = 3_600.0
_HELD_UP = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@dataclass(frozen=True)
class OperatorApi:
    """The API as an operator uses it, and the log behind it."""

    api_client: ApiClient
    database: Database

    async def add(self, topic: Topic = Topic.SWAP, **columns: Any) -> int:
        """A message; failed twice, and free, unless said otherwise."""
        said: dict[str, Any] = {
            "proc_flag": "N",
            "retry_times": 2,
            "im_ack": "N",
            "next_attempt_at": datetime.now(UTC),
        } | columns
        uprns: dict[str, Any] = {"uprn_1": 1, "uprn_2": 2 if topic is Topic.SWAP else None}
        row = AddressMessage(topic=topic, msg_no=secrets.token_hex(8), payload={}, cycle_id="cycle", **uprns, **said)
        async with self.database.session() as session:
            session.add(row)
        assert row.id is not None
        return row.id

    async def row(self, id_: int) -> asyncpg.Record:
        """A message as the log has it."""
        async with self.database.connection() as connection:
            row = await connection.fetchrow("SELECT * FROM im_infi_addr_sync_log WHERE id = $1", id_)
        assert row is not None
        return row

    async def audit(self) -> list[tuple[Any, ...]]:
        """What was noted."""
        async with self.database.connection() as connection:
            rows = await connection.fetch("SELECT who, action, log_id, reason FROM addr_audit ORDER BY id")
        return [tuple(row) for row in rows]

    async def post(self, path: str, **body: Any) -> Reply:
        """Order something."""
        return await self.api_client.as_admin("POST", f"/v1/addresses/{path}", json=SIGNED | body)

    async def count(self, **query: str) -> Reply:
        """Ask how many would be retried or skipped."""
        return await self.api_client.as_admin("GET", "/v1/addresses/messages:count", params=query)


@pytest.fixture
async def operator(settings: Settings, database: Database) -> AsyncIterator[OperatorApi]:
    """The API, and an empty log."""
    async with running_api(settings) as api_client:
        yield OperatorApi(api_client, database)


async def test_a_failed_message_is_tried_again(operator: OperatorApi) -> None:
    """It is as if it had never failed, a cycle is triggered, and the audit has the operator and the reason."""
    schedule = await handle.create_or_update_cycle_schedule(await temporal.connect(), HOUR)
    id_ = await operator.add()

    reply = await operator.post(f"messages/{id_}/retry")

    assert (reply.status, reply.body["state"], reply.body["retry_times"]) == (200, "failed", 0)
    assert [(each["who"], each["action"]) for each in reply.body["actions"]] == [("ann", "retry")]
    assert await operator.audit() == [("ann", "retry", id_, SIGNED["reason"])]

    async def woken() -> bool:
        return (await schedule.describe()).info.num_actions == 1

    await eventually(woken)
    await schedule.delete()


@pytest.mark.parametrize("columns", [{"proc_flag": "P"}, {"next_attempt_at": None}], ids=["taken", "swap-tried-again"])
async def test_what_a_cycle_has_is_left_alone(operator: OperatorApi, columns: dict[str, Any]) -> None:
    """The response says that it is being processed now, and nothing is changed or recorded."""
    id_ = await operator.add(**columns)
    before = await operator.row(id_)

    replies = [
        await operator.post(f"messages/{id_}/retry"),
        await operator.post(f"messages/{id_}/skip", though_touched=True),
    ]

    assert {(reply.status, reply.code) for reply in replies} == {(409, "message_being_processed")}
    assert await operator.row(id_) == before
    assert await operator.audit() == []


@pytest.mark.parametrize("verb", ["retry", "skip"])
async def test_who_comes_while_a_cycle_takes_it_is_too_late(operator: OperatorApi, verb: str) -> None:
    """The operator's statement waits for the cycle's, and then finds the message taken."""
    id_ = await operator.add(retry_times=1)
    async with operator.database.connection() as cycle:
        async with cycle.transaction():
            taken = await cycle.fetch(cycle_store._READ[Topic.SWAP], 2, 10)
            await cycle.execute(cycle_store._TAKE_FAILED, [row["id"] for row in taken], "cycle-2")
            asked = asyncio.create_task(operator.post(f"messages/{id_}/{verb}"))

            async def is_held_up() -> bool:
                # Asked outside the cycle's transaction: within one, PostgreSQL repeats its first answer.
                async with operator.database.connection() as onlooker:
                    return bool(await onlooker.fetchval(_HELD_UP))

            await eventually(is_held_up)
        reply = await asked

    assert (reply.status, reply.code) == (409, "message_being_processed")
    row = await operator.row(id_)
    assert (row["proc_flag"], row["retry_times"], row["cycle_id"], row["next_attempt_at"]) == ("N", 1, "cycle-2", None)
    assert await operator.audit() == []


async def test_many_are_retried_without_waiting_for_a_cycle(operator: OperatorApi) -> None:
    """What a cycle is taking, or has, is left alone and counted; the others are tried again."""
    free = [await operator.add() for _ in range(3)]
    locked = await operator.add()
    await operator.add(next_attempt_at=None)
    async with operator.database.connection() as cycle, cycle.transaction():
        await cycle.execute("SELECT FROM im_infi_addr_sync_log WHERE id = $1 FOR NO KEY UPDATE", locked)

        reply = await operator.post("messages:retry", topic=Topic.SWAP)

    assert reply.body == {"retried": 3, "busy": 2, "remaining": 0}
    assert [entry[:3] for entry in await operator.audit()] == [("ann", "retry", id_) for id_ in free]
    assert {(await operator.row(id_))["retry_times"] for id_ in free} == {0}


async def test_repeating_a_retry_of_many_comes_to_an_end(operator: OperatorApi) -> None:
    """Each time the oldest; those that were retried before do not match again."""
    ids = [await operator.add(Topic.DELETE) for _ in range(5)]

    replies = [(await operator.post("messages:retry", limit=2)).body for _ in range(4)]

    assert [(each["retried"], each["remaining"]) for each in replies] == [(2, 3), (2, 1), (1, 0), (0, 0)]
    assert [entry[2] for entry in await operator.audit()] == ids


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({}, 4),
    ({"topic": "deleteInfinityAddress"}, 1),
    ({"uprn": 2}, 3),
    ({"uprn": 3}, 0),
    ({"module": "im"}, 3),
    ({"module": "ed"}, 1),
    ({"kind": "missing"}, 1),
    ({"created_after": "2199-01-01T00:00:00Z"}, 0),
    ({"created_before": "2199-01-01T00:00:00Z", "module": "ed"}, 1),
    ({"state": "given_up"}, 3),
    ({"state": "failed"}, 1),
]


async def test_many_are_chosen_by_a_filter(operator: OperatorApi) -> None:
    """By topic, UPRN, module, reason and time; nothing that waits, is done or is being processed."""
    await operator.add(Topic.DELETE)
    await operator.add()
    await operator.add(wait_reason={"kind": "missing", "missing": [2]})
    young = await operator.add(im_ack="Y", ed_ack="N", retry_times=1)
    for flag in (None, "Y", "P"):
        await operator.add(proc_flag=flag)

    for filter_, count in FILTERS:
        counted = await operator.count(**filter_)
        assert (counted.status, counted.body["messages"], counted.body["busy"]) == (200, count, 0), filter_
        reply = await operator.post("messages:retry", **filter_)
        assert (reply.status, reply.body) == (200, {"retried": count, "busy": 0, "remaining": 0}), filter_
        async with operator.database.connection() as connection:
            await connection.execute("UPDATE im_infi_addr_sync_log SET retry_times = 2 - (id = $1)::int", young)


async def test_many_are_chosen_by_their_ids(operator: OperatorApi) -> None:
    """Only those, and of them only what has failed and no cycle has."""
    ids = [await operator.add() for _ in range(3)]
    taken, waiting = await operator.add(proc_flag="P"), await operator.add(proc_flag=None, retry_times=0)

    reply = await operator.post("messages:retry", ids=[*ids[:2], taken, waiting, 4711])

    assert reply.body == {"retried": 2, "busy": 1, "remaining": 0}
    assert [(await operator.row(id_))["retry_times"] for id_ in ids] == [0, 0, 2]


async def test_many_are_skipped_unless_a_module_has_them(operator: OperatorApi) -> None:
    """What is being processed, or may have been applied, is left alone and counted; the audit names each."""
    failed = [await operator.add() for _ in range(3)]
    touched = await operator.add(ed_ack="Y")
    await operator.add(next_attempt_at=None)
    waiting = await operator.add(proc_flag=None, retry_times=0)

    counted = await operator.count()
    first = await operator.post("messages:skip", reason="all of it was a test", limit=2)
    rest = await operator.post("messages:skip", reason="all of it was a test")

    assert counted.body == {"messages": 4, "touched": 1, "busy": 1}
    assert first.body == {"skipped": 2, "busy": 1, "touched": 1, "remaining": 1}
    assert rest.body == {"skipped": 1, "busy": 1, "touched": 1, "remaining": 0}
    assert sorted(await operator.audit()) == [("ann", "skip", id_, "all of it was a test") for id_ in failed]
    rows = [await operator.row(id_) for id_ in (*failed, touched, waiting)]
    assert [row["proc_flag"] for row in rows] == ["Y", "Y", "Y", "N", None]
    assert rows[0]["reason"] == "Skipped by ann: all of it was a test"


async def test_what_has_not_been_tried_is_skipped_by_its_id_only(operator: OperatorApi) -> None:
    """A filter means what has failed; who names a message means it."""
    waiting = [await operator.add(proc_flag=None, retry_times=0) for _ in range(2)]

    by_filter = await operator.post("messages:skip")
    by_id = await operator.post("messages:skip", ids=waiting[:1])

    assert (by_filter.body["skipped"], by_id.body["skipped"]) == (0, 1)
    assert [(await operator.row(id_))["proc_flag"] for id_ in waiting] == ["Y", None]


@pytest.mark.parametrize("flag", [None, "N"], ids=["waiting", "failed"])
async def test_a_message_is_skipped_with_a_reason(operator: OperatorApi, flag: str | None) -> None:
    """It is done for good, with the operator and the reason."""
    id_ = await operator.add(proc_flag=flag)

    reply = await operator.post(f"messages/{id_}/skip", reason="it was a test")

    assert (reply.status, reply.body["state"], reply.body["reason"]) == (200, "done", "Skipped by ann: it was a test")
    assert await operator.audit() == [("ann", "skip", id_, "it was a test")]
    again = await operator.post(f"messages/{id_}/skip")
    retried = await operator.post(f"messages/{id_}/retry")
    assert (again.code, retried.code) == ("message_done", "message_done")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"ed_ack": "Y"}, "applied by ed"),
        ({"wait_reason": {"kind": "failed", "unsure": ["wfm"]}}, "may have been applied by wfm"),
        ({"ed_ack": "Y", "wait_reason": {"kind": "failed", "unsure": ["od"]}}, "ed and may have been applied by od"),
        ({"wait_reason": {"inherits": True}}, "supersedes one that a module may have applied"),
    ],
)
async def test_a_touched_message_is_skipped_only_knowingly(
    operator: OperatorApi, columns: dict[str, Any], said: str
) -> None:
    """The response names the modules that have it, and the caller has to confirm the skip."""
    id_ = await operator.add(**columns)

    refused = await operator.post(f"messages/{id_}/skip")
    row = await operator.row(id_)
    skipped = await operator.post(f"messages/{id_}/skip", though_touched=True)

    assert (refused.status, refused.code, row["proc_flag"]) == (409, "message_touched", "N")
    assert said in refused.body["detail"]
    assert (skipped.status, skipped.body["state"]) == (200, "done")


async def test_what_is_mended_leaves_the_quarantine(operator: OperatorApi) -> None:
    """Some of many; the audit is what is left of them."""
    unreadable = [
        QuarantinedMessage(topic=Topic.DELETE, msg_no=number, raw=b"{", raw_bytes=1, reason="?", created_at=NOW)
        for number in ("1", "2", "3")
    ]
    async with operator.database.session() as session:
        session.add_all(unreadable)
    first, second, third = [each.id for each in unreadable]

    replies = [await operator.post("quarantine:discard", ids=ids) for ids in ([first, third], [third, 4711])]

    left = await operator.api_client.as_admin("GET", "/v1/addresses/quarantine")
    assert [reply.body["discarded"] for reply in replies] == [2, 0]
    assert [each["quarantine_id"] for each in left.body["items"]] == [second]
    said = [f"{SIGNED['reason']} ({Topic.DELETE}, message {number})" for number in ("1", "3")]
    assert sorted(await operator.audit()) == [("ann", "discard", None, each) for each in said]


async def test_nobody_acts_without_a_name_and_a_reason(operator: OperatorApi) -> None:
    """Operators share one key, so that the audit needs both."""
    bodies = [{"who": "ann"}, {"reason": "because"}, {"who": "ann", "reason": ""}, {"who": " ", "reason": "because"}]
    paths = ["messages/1/retry", "messages:retry", "messages/1/skip", "messages:skip", "cycle/pause", "cycle/resume"]
    paths.append("quarantine:discard")

    replies = [
        await operator.api_client.as_admin("POST", f"/v1/addresses/{path}", json=body)
        for path in paths
        for body in bodies
    ]

    assert {reply.status for reply in replies} == {422}


async def test_what_there_is_not_is_neither_retried_nor_skipped(operator: OperatorApi) -> None:
    """And what has not been tried yet needs no retry."""
    waiting = await operator.add(proc_flag=None, retry_times=0)

    replies = [await operator.post(f"messages/{id_}/{verb}") for id_ in (4711, 2**63 - 1) for verb in ("retry", "skip")]
    early = await operator.post(f"messages/{waiting}/retry")

    assert {(reply.status, reply.code) for reply in replies} == {(404, "not_found")}
    assert (early.status, early.code) == (409, "message_not_failed")


async def test_operators_and_loads_in_a_crowd_never_take_the_same_message(
    operator: OperatorApi, settings: Settings
) -> None:
    """In any interleaving, a message is taken by one cycle, or retried, or skipped; and no statement waits for ever."""
    ids = [await operator.add(topic, retry_times=1) for topic in (Topic.SWAP, Topic.DELETE) for _ in range(40)]
    tuned = settings.addresses.model_copy(update={"threshold": 20})

    async def skip_all() -> int:
        skipped = [
            await actions.skip_message(operator.database, id_, ActorWithReason("ann", "why"), though_touched=False)
            for id_ in ids
        ]
        return sum(skipped)

    async def retry_all() -> int:
        by = ActorWithReason("ann", "why")
        return sum(
            [
                (await actions.retry_messages(operator.database, MessageSearchConditions(), 7, by)).changed
                for _ in range(20)
            ]
        )

    load = cycle_store.resume_or_begin_cycle(operator.database, tuned, "cycle-2")
    skipped, retried, _ = await asyncio.gather(skip_all(), retry_all(), load)

    rows = [await operator.row(id_) for id_ in ids]
    given_up = {row["id"] for row in rows if row["reason"]}
    taken = {row["id"] for row in rows if row["cycle_id"] != "cycle"}
    audit = await operator.audit()
    assert len(given_up) == skipped
    assert {entry[2] for entry in audit if entry[1] == "skip"} == given_up
    assert not given_up & taken
    assert len(audit) == skipped + retried


async def test_a_chain_is_retried_through_the_api(operator: OperatorApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that shares an address with it, and what shares one with that; the answer says how many."""
    first, second = await operator.add(), await operator.add(retry_times=3)
    taken = await operator.add(next_attempt_at=None)

    reply = await operator.post(f"messages/{first}/retry-chain")

    assert (reply.status, reply.body) == (200, {"retried": 2, "busy": 1, "remaining": 0})
    assert [(await operator.row(id_))["retry_times"] for id_ in (first, second, taken)] == [0, 0, 2]
    assert sorted(await operator.audit()) == [("ann", "retry", id_, SIGNED["reason"]) for id_ in (first, second)]
    assert (await operator.post("messages/987654/retry-chain")).code == "not_found"
    assert (await operator.post(f"messages/{taken}/retry-chain")).code == "message_being_processed"
    monkeypatch.setattr(actions, "retry_linked_messages", partial(actions.retry_linked_messages, limit=2))
    assert (await operator.post(f"messages/{first}/retry-chain")).code == "too_many_linked_messages"
