"""Schedules of what is not configured run nothing; they begin with the first platform and the first message."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from pydantic import SecretStr
from temporalio.client import Client

from domain.addresses import names as addresses
from domain.addresses.messages import PublishedMessage, Topic
from domain.orders import names as orders
from infra import temporal
from infra.address_settings import PubSubPushSettings
from infra.database import Database
from infra.settings import Settings
from services.addresses import CycleTrigger
from sims.platforms.scenario import PlatformScenario
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.support.orders import running_orders
from tests.support.waiting import eventually
from workflows import systems
from workflows.orders import handle

pytestmark = pytest.mark.stack

WATCHING = [timedelta(seconds=handle.WATCH_SECONDS)]
MINUTE = [timedelta(minutes=1)]
SECRET = SecretStr("a-secret-of-pushes")


async def read_intervals(engine: Client, name: str) -> list[timedelta]:
    """Return the intervals of a schedule; without one it never starts anything by itself."""
    return [each.every for each in (await engine.get_schedule_handle(name).describe()).schedule.spec.intervals]


async def store_message(database: Database) -> None:
    """Put a message into the log, as a push does."""
    data = msgspec.json.encode({"uprn": 1, "address_id": 1, "record": {}})
    message = PublishedMessage(message_id="1", data=data)
    await MessageLogAndQuarantineWriter(database, 1_000).store_messages_or_quarantine_them(
        [DeliveredMessage(Topic.CREATE_UPDATE, message)]
    )


async def test_what_is_not_configured_does_not_run(settings: Settings, database: Database) -> None:
    """Not after the installation was prepared, nor after it was prepared again, as every start does."""
    engine = await temporal.connect()
    for _ in range(2):
        await systems.create_or_update_schedules(engine, database, settings)
        assert await read_intervals(engine, orders.WATCH) == []
        assert await read_intervals(engine, addresses.CYCLE_SCHEDULE) == []


async def test_the_watch_begins_with_the_first_platform(settings: Settings, database: Database) -> None:
    """It stays when the installation is prepared again, also where the engine has lost it."""
    async with running_orders(settings) as running:
        engine = running.engine
        await systems.create_or_update_schedules(engine, database, settings)
        running.play(PlatformScenario(orders=1, span_seconds=60))
        await running.set_up()
        assert await read_intervals(engine, orders.WATCH) == WATCHING

        await engine.get_schedule_handle(orders.WATCH).delete()
        await systems.create_or_update_schedules(engine, database, settings)
        assert await read_intervals(engine, orders.WATCH) == WATCHING


async def test_a_paused_watch_stays_paused_when_a_platform_is_set_up(settings: Settings, database: Database) -> None:
    """It gets its interval, and an operator has the last word."""
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings)
    await engine.get_schedule_handle(orders.WATCH).pause()

    await handle.set_watch_schedule_intervals_if_none(engine)

    assert await read_intervals(engine, orders.WATCH) == WATCHING
    assert (await engine.get_schedule_handle(orders.WATCH).describe()).schedule.state.paused


async def test_cycles_run_where_messages_can_come_in(settings: Settings, database: Database) -> None:
    """As soon as an installation is prepared with a secret of pushes."""
    own = settings.addresses.model_copy(update={"push": PubSubPushSettings(secret=SECRET)})
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings.model_copy(update={"addresses": own}))
    assert await read_intervals(engine, addresses.CYCLE_SCHEDULE) == MINUTE


async def test_cycles_begin_with_the_first_message(settings: Settings, database: Database) -> None:
    """Where only the API knows the secret of pushes; they go on while a message is left, prepared anew or not."""
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings)
    trigger = CycleTrigger(engine, 60)
    await store_message(database)
    trigger.request_cycle()

    async def has_run() -> bool:
        return (await engine.get_schedule_handle(addresses.CYCLE_SCHEDULE).describe()).info.num_actions > 0

    await eventually(has_run)
    await trigger.close()
    assert await read_intervals(engine, addresses.CYCLE_SCHEDULE) == MINUTE
    await systems.create_or_update_schedules(engine, database, settings)
    assert await read_intervals(engine, addresses.CYCLE_SCHEDULE) == MINUTE
