"""Intake by pulling, through real parts: what was published is in the log once, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from sqlmodel import select
from temporalio.client import Client

from clients.pubsub import PubSubClient, PubSubFailure
from domain.addresses import names
from domain.addresses.activity_models import IntakeMessageCounts, IntakeTopicAndCarriedCounts
from domain.addresses.messages import Topic
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from sims.pubsub.scenario import Scenario
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from stores.tables.addresses import AddressMessage, QuarantinedMessage
from tests.support.pubsub import Intake, create_update, delete, many, running_intake, swap
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.addresses import handle as addresses_handle
from workflows.addresses.maintenance import AddressIntake

pytestmark = pytest.mark.stack

QUEUES = (names.INTAKE_QUEUE,)
GRACEFUL_SECONDS = 40.0


async def list_log(database: Database) -> list[tuple[str, str]]:
    """Topic and number of every row."""
    statement = select(AddressMessage.topic, AddressMessage.msg_no)
    async with database.session() as session:
        return sorted((row[0], row[1]) for row in await session.exec(statement))


async def list_quarantine(database: Database) -> list[tuple[str, str]]:
    """Topic and number of all that could not be read."""
    statement = select(QuarantinedMessage.topic, QuarantinedMessage.msg_no)
    async with database.session() as session:
        return sorted((row[0], row[1]) for row in await session.exec(statement))


def pair_with_topic(topic: Topic, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Numbers with their topic."""
    return [(topic, each) for each in ids]


async def until_all_acknowledged(world: Intake) -> None:
    """Wait until Pub/Sub has nothing left to deliver."""
    await eventually(lambda: world.waiting == 0)


@pytest.mark.parametrize("seed", [1, 2])
async def test_each_message_is_in_the_log_once(settings: Settings, database: Database, seed: int) -> None:
    """Shuffled, late, twice, with acknowledgements that get lost and calls that fail, and poison among them."""
    scenario = Scenario(
        seed=seed, reorder=20, duplicate=0.2, delay=0.1, drop_acks=0.1, fail=0.05, wait_seconds=0.2, delay_seconds=0.3
    )
    async with running_intake(settings, scenario, pull_max=50) as world, running_worker(world.settings, QUEUES):
        publish = world.publisher.publish
        good = pair_with_topic(Topic.CREATE_UPDATE, await publish(Topic.CREATE_UPDATE, *many(300)))
        good += pair_with_topic(Topic.SWAP, await publish(Topic.SWAP, *(swap(n, n + 1) for n in range(1, 101))))
        good += pair_with_topic(Topic.DELETE, await publish(Topic.DELETE, *(delete(n) for n in range(1, 101))))
        poison = pair_with_topic(Topic.SWAP, await publish(Topic.SWAP, swap(7, 7), b"\xff", b"{}"))
        await until_all_acknowledged(world)

    assert await list_log(database) == sorted(good)
    assert await list_quarantine(database) == sorted(poison)


@pytest.mark.parametrize("spoil", [0.4, 1.0])
async def test_envelopes_that_cannot_be_read_go_into_quarantine(
    settings: Settings, database: Database, spoil: float
) -> None:
    """Also where a pull brings nothing else; all are acknowledged, and what can be read is taken in."""
    scenario = Scenario(spoil=spoil, wait_seconds=0.2)
    async with running_intake(settings, scenario, pull_max=5) as world, running_worker(world.settings, QUEUES):
        ids = await world.publisher.publish(Topic.DELETE, *(delete(uprn) for uprn in range(1, 31)))
        await until_all_acknowledged(world)

    spoiled = {each for each in ids if scenario.rolls(spoil, "spoil", each)}
    assert spoiled
    assert await list_quarantine(database) == sorted(pair_with_topic(Topic.DELETE, list(spoiled)))
    assert await list_log(database) == sorted(
        pair_with_topic(Topic.DELETE, [each for each in ids if each not in spoiled])
    )


async def test_what_is_in_the_log_and_not_acknowledged_is_not_written_again(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker dies between its commit and its acknowledgement: it comes again, and is known."""
    acknowledge = PubSubClient.acknowledge
    lost: list[str] = []

    async def fail_first(pubsub: PubSubClient, subscription: str, ack_ids: Sequence[str]) -> None:
        if not lost:
            lost.extend(ack_ids)
            raise PubSubFailure("the network is down")
        await acknowledge(pubsub, subscription, ack_ids)

    monkeypatch.setattr(PubSubClient, "acknowledge", fail_first)
    async with running_intake(settings, deadline_seconds=0.5) as world, running_worker(world.settings, QUEUES):
        ids = await world.publisher.publish(Topic.CREATE_UPDATE, *many(20))
        await until_all_acknowledged(world)

    assert lost
    assert await list_log(database) == pair_with_topic(Topic.CREATE_UPDATE, ids)


async def test_what_cannot_be_written_is_given_back_at_once(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may reach the database; messages do not wait for the end of a long deadline."""
    store = MessageLogAndQuarantineWriter.store_messages_or_quarantine_them
    refused: list[DeliveredMessage] = []

    async def fail_first(
        inbox: MessageLogAndQuarantineWriter, delivered: Sequence[DeliveredMessage]
    ) -> IntakeMessageCounts:
        if not refused:
            refused.extend(delivered)
            raise ConnectionError("the database is down")
        return await store(inbox, delivered)

    monkeypatch.setattr(MessageLogAndQuarantineWriter, "store_messages_or_quarantine_them", fail_first)
    async with running_intake(settings, deadline_seconds=600) as world, running_worker(world.settings, QUEUES):
        ids = await world.publisher.publish(Topic.DELETE, delete(1), delete(2))
        await until_all_acknowledged(world)

    assert refused
    assert await list_log(database) == pair_with_topic(Topic.DELETE, ids)


async def test_what_another_pull_received_is_stored_though_one_failed(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pulls of a topic run side by side: what one of them is storing does not wait for a long deadline either."""
    store = MessageLogAndQuarantineWriter.store_messages_or_quarantine_them
    calls, second_began = list[int](), asyncio.Event()

    async def fail_first_while_second_stores(
        inbox: MessageLogAndQuarantineWriter, delivered: Sequence[DeliveredMessage]
    ) -> IntakeMessageCounts:
        calls.append(len(delivered))
        if len(calls) == 1:
            await second_began.wait()
            raise ConnectionError("the database is down")
        if len(calls) == 2:
            second_began.set()
            await asyncio.sleep(0.3)
        return await store(inbox, delivered)

    monkeypatch.setattr(
        MessageLogAndQuarantineWriter, "store_messages_or_quarantine_them", fail_first_while_second_stores
    )
    async with running_intake(settings, deadline_seconds=600) as world, running_worker(world.settings, QUEUES):
        first = await world.publisher.publish(Topic.DELETE, delete(1))
        await eventually(lambda: len(calls) == 1)
        second = await world.publisher.publish(Topic.DELETE, delete(2))
        await until_all_acknowledged(world)

    assert await list_log(database) == pair_with_topic(Topic.DELETE, [*first, *second])


async def test_a_worker_that_stops_leaves_its_topics_to_the_next(settings: Settings, database: Database) -> None:
    """A pull that waits for messages does not keep it from stopping, and the next one goes on with the same runs."""
    scenario = Scenario(wait_seconds=60)
    engine_settings = settings.engine.model_copy(update={"graceful_shutdown_seconds": GRACEFUL_SECONDS})
    patient = settings.model_copy(update={"engine": engine_settings})
    async with running_intake(patient, scenario, deadline_seconds=5) as world:
        async with running_worker(world.settings, QUEUES) as running:
            first = await world.publisher.publish(Topic.DELETE, delete(1))
            await until_all_acknowledged(world)
            engine = running.services.engine
            runs = await _runs(engine)
            begun = time.monotonic()
            await running.stop()
            assert time.monotonic() - begun < GRACEFUL_SECONDS
        second = await world.publisher.publish(Topic.DELETE, delete(2))
        async with running_worker(world.settings, QUEUES):
            await until_all_acknowledged(world)
            assert await _runs(await temporal.connect()) == runs

    assert await list_log(database) == pair_with_topic(Topic.DELETE, [*first, *second])


async def _runs(engine: Client) -> list[str | None]:
    """The run of each topic."""
    return [
        (await engine.get_workflow_handle(names.build_intake_workflow_id(topic)).describe()).run_id for topic in Topic
    ]


async def test_an_intake_tells_how_much_it_took_in(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of each slice: what was new, what had come before, what could not be read."""
    monkeypatch.setattr(addresses_handle, "Topic", [])  # the worker starts none of its own
    async with (
        # What is stored, and acknowledged too late, would come again and be counted.
        running_intake(settings, Scenario(wait_seconds=0.1), deadline_seconds=20) as world,
        running_worker(world.settings, QUEUES) as running,
    ):
        await world.publisher.publish(Topic.CREATE_UPDATE, create_update(1, event_id="e"), create_update(2), b"?")
        await world.publisher.publish(Topic.CREATE_UPDATE, create_update(1, event_id="e"))
        handle = await running.services.engine.start_workflow(
            AddressIntake.run,
            IntakeTopicAndCarriedCounts(
                topic=Topic.CREATE_UPDATE, slice_seconds=0.5, taken=IntakeMessageCounts(new=100)
            ),
            id="intake-test",
            task_queue=names.INTAKE_QUEUE,
        )

        async def has_counts() -> bool:
            return await handle.query(AddressIntake.status) == IntakeMessageCounts(new=102, repeated=1, unreadable=1)

        await eventually(has_counts)
        await handle.terminate()


async def test_where_nothing_is_pulled_an_intake_ends(settings: Settings) -> None:
    """An installation that is pushed to starts none, and one that was switched over ends those that run."""
    async with running_worker(settings, QUEUES) as running:
        taken = await running.services.engine.execute_workflow(
            AddressIntake.run,
            IntakeTopicAndCarriedCounts(topic=Topic.SWAP),
            id="intake-test",
            task_queue=names.INTAKE_QUEUE,
        )
        found = [each.id async for each in running.services.engine.list_workflows()]

    assert taken == IntakeMessageCounts()
    assert not [each for each in found if each.startswith("addresses-intake")]


async def test_messages_that_do_not_fit_into_a_pull_are_pulled_a_few_at_a_time(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are waiting, and although each pull may be as large as the setting says."""
    monkeypatch.setattr("clients.pubsub.ANSWER_MAX_BYTES", 2_000)
    monkeypatch.setattr("activities.addresses.intake.PULL_USUAL_BYTES", 1_200)
    async with running_intake(settings, deadline_seconds=0.3) as world, running_worker(world.settings, QUEUES):
        ids = await world.publisher.publish(Topic.DELETE, *(delete(uprn, note="x" * 300) for uprn in range(1, 31)))
        await until_all_acknowledged(world)

    assert await list_log(database) == sorted(pair_with_topic(Topic.DELETE, ids))
