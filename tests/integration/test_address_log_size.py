"""A log of a million messages: what cycles and operators ask of it is read from indexes, a little at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from activities.addresses import delivery
from dev.embedded.stack import EmbeddedStack
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from stores.addresses import actions, cycle, search
from stores.addresses import delivery as delivery_store
from stores.addresses.actions import ActorWithReason
from stores.addresses.search import MessageSearch, MessageSearchConditions
from tests.support.stack import own_database

pytestmark = pytest.mark.stack

LOG = "im_infi_addr_sync_log"
HISTORY = f"{LOG}_his"
ARCHIVED = 200_000
MESSAGES = 1_000_000
FAILED = 20_000
"""With the lowest ids, tried as often as they may be: every look for work passes them."""
OWNED = 10_000
THRESHOLD = 10_000
PAGE = 100

_FILL = f"""
    INSERT INTO {LOG}
        (topic, uprn_1, uprn_2, msg_no, proc_flag, retry_times, cycle_id, next_attempt_at, im_ack, createdat)
    SELECT topic, n % 300000 + 1, CASE WHEN topic = '{Topic.SWAP}' THEN n % 299999 + 2 END, n::text, flag,
        CASE flag WHEN 'N' THEN 2 ELSE 0 END, CASE flag WHEN 'P' THEN 'cycle' END,
        CASE flag WHEN 'N' THEN now() END, CASE flag WHEN 'N' THEN 'N' END, now() - (2000000 - n) * interval '1 second'
    FROM (
        SELECT n,
            CASE WHEN n % 10 < 7 THEN '{Topic.CREATE_UPDATE}' WHEN n % 10 < 9 THEN '{Topic.SWAP}'
                ELSE '{Topic.DELETE}' END AS topic,
            CASE WHEN n <= {FAILED} THEN 'N' WHEN n <= {FAILED + OWNED} THEN 'P' END AS flag
        FROM generate_series(1, {MESSAGES}) AS n
    ) AS each
"""  # noqa: S608 - names and numbers of ours

_ARCHIVE = f"""
    INSERT INTO {HISTORY} (id, topic, uprn_1, uprn_2, msg_no, proc_flag, createdat)
    SELECT id, topic, uprn_1, uprn_2, msg_no, 'Y', createdat FROM {LOG} WHERE id <= {ARCHIVED}
"""  # noqa: S608 - names and numbers of ours


@pytest.fixture(scope="module")
async def connection(stack: EmbeddedStack, template: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection to a database whose log has a million rows; indexes that are built afterwards are built quickly."""
    async with own_database(stack, template) as url:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            await connection.execute("SET statement_timeout = 0; SET maintenance_work_mem = '256MB'")
            indexes = await connection.fetch(
                f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename = '{LOG}' AND indexname LIKE 'ix_%'"  # noqa: S608
            )
            for index in indexes:
                await connection.execute(f"DROP INDEX {index['indexname']}")
            await connection.execute(f"ALTER TABLE {LOG} SET UNLOGGED")
            await connection.execute(_FILL)
            for index in indexes:
                await connection.execute(index["indexdef"])
            await connection.execute(_ARCHIVE)
            await connection.execute(f"VACUUM ANALYZE {LOG}")
            await connection.execute(f"VACUUM ANALYZE {HISTORY}")
            yield connection
        finally:
            await connection.close()


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


async def plan(
    connection: asyncpg.Connection[asyncpg.Record], statement: str, *arguments: object
) -> list[dict[str, Any]]:
    """The nodes of a statement's plan, after it was run and undone."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", *arguments)
    finally:
        await transaction.rollback()
    return list(_nodes(json.loads(told)[0]["Plan"]))


def rows_read(nodes: list[dict[str, Any]]) -> int:
    """How many rows were taken from tables and indexes, those that were thrown away included."""
    scans = [node for node in nodes if "Scan" in node["Node Type"] and "Relation Name" in node]
    return sum(
        round(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))) for node in scans
    )


def is_indexed(nodes: list[dict[str, Any]], table: str = LOG) -> bool:
    """Whether the log was nowhere read from its beginning to its end."""
    return all(node["Node Type"] != "Seq Scan" for node in nodes if node.get("Relation Name") == table)


@pytest.mark.parametrize("topic", Topic)
async def test_a_cycle_is_loaded_in_order_without_sorting_what_waits(
    connection: asyncpg.Connection[asyncpg.Record], topic: Topic
) -> None:
    """It reads what it takes, and the failed ones before that; not the hundreds of thousands that come later."""
    nodes = await plan(connection, cycle._READ[topic], 2, THRESHOLD)

    assert is_indexed(nodes)
    assert "Sort" not in {node["Node Type"] for node in nodes}
    assert THRESHOLD <= rows_read(nodes) <= THRESHOLD + FAILED + OWNED


@pytest.mark.parametrize(
    ("statement", "arguments", "at_most"),
    [
        (cycle._OWNER, (), 2 * (FAILED + OWNED)),
        (cycle._RESUME, ("cycle",), 2 * (FAILED + OWNED)),
        # All swaps, where PostgreSQL takes that for less work than to sort what is begun.
        (cycle._WAITING, (Topic.SWAP, "cycle"), MESSAGES * 0.2),
        (cycle._TAKE, (list(range(100_000, 100_000 + THRESHOLD)), "next"), 2 * THRESHOLD),
        (delivery_store._UNCONFIRMED, ("[]", 0, delivery.UNCONFIRMED_PAGE), delivery.UNCONFIRMED_PAGE),
        (cycle._ARCHIVE, (cycle.ARCHIVE_BATCH,), 2 * cycle.ARCHIVE_BATCH),
    ],
    ids=["owner", "resume", "waiting", "take", "hear", "archive"],
)
async def test_what_else_a_cycle_asks_reads_little(
    connection: asyncpg.Connection[asyncpg.Record], statement: str, arguments: tuple[object, ...], at_most: int
) -> None:
    """What is begun, however many messages wait behind it."""
    nodes = await plan(connection, statement, *arguments)

    assert is_indexed(nodes)
    assert rows_read(nodes) <= at_most


@pytest.mark.parametrize(
    ("condition", "arguments", "at_most"),
    [
        ("uprn_1 = $1 OR uprn_2 = $1", (4_711,), PAGE),
        ("topic = $1", (Topic.DELETE,), 20 * PAGE),
        ("proc_flag = 'N'", (), FAILED),
        ("proc_flag = 'P'", (), OWNED),
        ("proc_flag IS NULL", (), 2 * PAGE),
        ("proc_flag = 'N' AND im_ack = 'N'", (), FAILED),
        ("createdat > now() - interval '1500000 s' AND createdat < now() - interval '1499900 s'", (), 2 * PAGE),
    ],
)
async def test_a_search_reads_about_a_page(
    connection: asyncpg.Connection[asyncpg.Record], condition: str, arguments: tuple[object, ...], at_most: int
) -> None:
    """By UPRN, topic, state, module and time, the newest first."""
    statement = f"SELECT * FROM {LOG} WHERE {condition} ORDER BY id DESC LIMIT {PAGE}"  # noqa: S608 - our own words
    nodes = await plan(connection, statement, *arguments)

    assert is_indexed(nodes)
    assert rows_read(nodes) <= at_most


IM_FAILED = MessageSearchConditions(topic=Topic.SWAP, module=Module.IM)
AN_HOUR = MessageSearchConditions(
    topic=Topic.DELETE,
    created_after=datetime.now(UTC) - timedelta(seconds=1_503_600),
    created_before=datetime.now(UTC) - timedelta(seconds=1_500_000),
)


@pytest.mark.parametrize(
    ("filter_", "state", "at_most"),
    [
        (MessageSearchConditions(), None, 2 * PAGE),
        (MessageSearchConditions(uprn=4_711), None, 3 * PAGE),
        (MessageSearchConditions(uprn=4_711, topic=Topic.SWAP), MessageState.WAITING, 3 * PAGE),
        (MessageSearchConditions(topic=Topic.DELETE), None, 20 * PAGE),
        (MessageSearchConditions(topic=Topic.DELETE), MessageState.WAITING, 20 * PAGE),
        (MessageSearchConditions(), MessageState.WAITING, 2 * PAGE),
        (MessageSearchConditions(), MessageState.PROCESSING, FAILED + OWNED + PAGE),
        (MessageSearchConditions(), MessageState.FAILED, FAILED + PAGE),
        (MessageSearchConditions(), MessageState.GIVEN_UP, FAILED + PAGE),
        (MessageSearchConditions(topic=Topic.SWAP), MessageState.GIVEN_UP, FAILED + PAGE),
        (MessageSearchConditions(topic=Topic.SWAP, module=Module.IM), MessageState.GIVEN_UP, FAILED + PAGE),
        (MessageSearchConditions(topic=Topic.SWAP, module=Module.IM), None, FAILED + OWNED + PAGE),
        (MessageSearchConditions(kind=WaitKind.MISSING), None, FAILED + OWNED + PAGE),
        (AN_HOUR, None, 4_000),
        (MessageSearchConditions(), MessageState.DONE, PAGE),
    ],
)
async def test_what_operators_look_for_is_found_soon(
    connection: asyncpg.Connection[asyncpg.Record],
    filter_: MessageSearchConditions,
    state: MessageState | None,
    at_most: int,
) -> None:
    """Whatever is combined: a page, or what cycles have begun."""
    text, values = search.build_search_query(MessageSearch(filter_, PAGE, retries=2, state=state))
    nodes = await plan(connection, text, *values)

    assert is_indexed(nodes)
    assert rows_read(nodes) <= at_most


@pytest.mark.parametrize(
    ("filter_", "at_most"),
    [
        (MessageSearchConditions(), 2 * PAGE),
        (MessageSearchConditions(uprn=4_711), 3 * PAGE),
        (MessageSearchConditions(uprn=4_711, topic=Topic.SWAP, module=Module.IM), 3 * PAGE),
        (MessageSearchConditions(created_before=datetime.now(UTC) - timedelta(seconds=1_900_000)), 2 * PAGE),
        (
            MessageSearchConditions(
                module=Module.IM,
                created_after=datetime.now(UTC) - timedelta(seconds=1_903_600),
                created_before=datetime.now(UTC) - timedelta(seconds=1_900_000),
            ),
            4_000,
        ),
    ],
)
async def test_the_history_is_searched_by_uprn_and_time(
    connection: asyncpg.Connection[asyncpg.Record], filter_: MessageSearchConditions, at_most: int
) -> None:
    """Nothing else is asked of it without one of the two."""
    text, values = search.build_search_query(MessageSearch(filter_, PAGE, retries=2, in_history=True))
    nodes = await plan(connection, text, *values)

    assert is_indexed(nodes, HISTORY)
    assert rows_read(nodes) <= at_most


@pytest.mark.parametrize(
    ("order", "passes"), [(actions.build_bulk_retry_statement, 1), (actions.build_bulk_skip_statement, 2)]
)
@pytest.mark.parametrize(
    "filter_",
    [
        MessageSearchConditions(),
        IM_FAILED,
        MessageSearchConditions(uprn=4_711),
        MessageSearchConditions(ids=[1, 2, 50_000]),
    ],
)
@pytest.mark.long
async def test_many_are_retried_and_skipped_without_reading_the_log(
    connection: asyncpg.Connection[asyncpg.Record],
    filter_: MessageSearchConditions,
    order: Callable[[MessageSearchConditions, int, ActorWithReason], tuple[str, list[object]]],
    passes: int,
) -> None:
    """What has failed, once to count it, and of a skip once more to find who queues; what is changed of it, twice."""
    text, values = order(filter_, actions.RETRIED_MAX, ActorWithReason("ann", "why"))
    nodes = await plan(connection, text, *values)

    assert is_indexed(nodes)
    assert rows_read(nodes) <= passes * FAILED + 2 * actions.RETRIED_MAX


async def test_what_is_not_done_is_counted_from_indexes(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """A million messages are counted in the indexes of their topics; only what is begun is looked at."""
    begun = await plan(connection, cycle._BEGUN, 2)
    waiting = await plan(connection, cycle._UNFINISHED)
    looked_at = [node for node in waiting if node["Node Type"] != "Index Only Scan"]

    assert is_indexed(begun)
    assert rows_read(begun) <= FAILED + OWNED
    assert is_indexed(waiting)
    assert rows_read(looked_at) <= FAILED + OWNED + PAGE


@pytest.mark.parametrize("state", ["proc_flag = 'P'", "proc_flag = 'N'", "proc_flag IS NULL"])
async def test_the_oldest_of_a_state_is_at_hand(connection: asyncpg.Connection[asyncpg.Record], state: str) -> None:
    """For alarms that ask every few seconds."""
    statement = f"SELECT createdat FROM {LOG} WHERE topic = $1 AND {state} ORDER BY id LIMIT 1"  # noqa: S608
    nodes = await plan(connection, statement, Topic.SWAP)

    assert is_indexed(nodes)
    assert rows_read(nodes) <= FAILED + OWNED + PAGE


async def test_a_log_without_its_indexes_is_noticed(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """These tests see a difference where there is one."""
    statement = f"SELECT * FROM {LOG} WHERE event_id = 'none'"  # noqa: S608 - a column without an index
    nodes = await plan(connection, statement)

    assert not is_indexed(nodes)
    assert rows_read(nodes) > 0.99 * MESSAGES
