"""Watching: figures of what is not done, for whoever has to know that it takes too long."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import Gauge

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra import log
from infra.database import Database
from infra.settings import AddressSettings
from services.addresses import configuration
from stores.addresses import workload
from stores.addresses.workload import UnfinishedCounts

LOOK_SECONDS: Final = 15.0

OPEN: Final = Gauge("haulage_addresses_open", "Messages of addresses that are not done, by state.", ["topic", "state"])
OLDEST: Final = Gauge(
    "haulage_addresses_oldest_seconds", "Since when the oldest message in a state is there.", ["topic", "state"]
)
FAILED_IN: Final = Gauge(
    "haulage_addresses_failed_in", "Messages that are not done because they failed in a module.", ["topic", "module"]
)

_log = log.get(__name__)


async def show(database: Database, defaults: AddressSettings) -> None:
    """Show for ever how many messages are not done, and how old they are."""
    while True:
        try:
            retries = (await configuration.load_settings(database, defaults)).retries
            tell(await workload.count_unfinished(database, retries))
        except Exception as error:  # noqa: BLE001 (an outage ends no figures: the next look may succeed)
            _log.warning("address_figures_not_read", error=repr(error))
        await asyncio.sleep(LOOK_SECONDS)


def tell(counts: UnfinishedCounts) -> None:
    """Set the gauges."""
    for each in counts.counts:
        OPEN.labels(each.topic, each.state).set(each.messages)
        OLDEST.labels(each.topic, each.state).set(counts.oldest_seconds(each))
    for topic in Topic:
        for module in Module:
            failed = sum(each.failed_in[module] for each in counts.counts if each.topic is topic)
            FAILED_IN.labels(topic, module).set(failed)
