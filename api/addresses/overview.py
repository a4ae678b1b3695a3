"""What the overview and the metrics show of addresses: unfinished messages by state."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from prometheus_client import Gauge

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.workload import (
    ConcernKind,
    ConcernKindSubjectAndCause,
    CountAndOldestTime,
    CountsAndConcerns,
    WorkByProject,
)
from infra import log
from infra.address_settings import AddressSettings
from infra.database import Database
from infra.settings import Settings
from services import addresses
from services.services import Services
from stores.addresses import cycle
from stores.addresses.cycle import UnfinishedMessageCounts

UNIT: Final = "messages"
HAS_PROJECTS: Final = False
STANDSTILL_SECONDS: Final = 900


def get_failure_count_period(_: Settings) -> None:
    """Return None: a failed message counts until an operator handles it."""


def build_workload_counter(services: Services) -> Callable[[], Awaitable[WorkByProject]]:
    """Return a function that counts unfinished messages."""
    return partial(_count_messages_of_all_modules_as_one_workload, services.database, services.settings.addresses)


async def _count_messages_of_all_modules_as_one_workload(
    database: Database, defaults: AddressSettings
) -> WorkByProject:
    settings = await addresses.load_effective_settings(database, defaults)
    counts = await cycle.count_unfinished_messages(database, settings.failed_cycles_max)
    paused = await addresses.find_pauses_of_paused_modules(database, settings)
    tallies: defaultdict[MessageState, CountAndOldestTime] = defaultdict(CountAndOldestTime)
    for each in counts.counts:
        tallies[each.state] += CountAndOldestTime(each.messages, each.oldest_at)
    details = _count_failures_by_module_and_answer(counts)
    details.update(
        ConcernKindSubjectAndCause(ConcernKind.MODULE_PAUSED, module.upper(), f"{pause.who}: {pause.reason}")
        for module, pause in paused.items()
    )
    concerns = Counter(
        {
            ConcernKind.MODULE_PAUSED: len(paused),
            ConcernKind.GIVEN_UP: tallies[MessageState.GIVEN_UP].count,
            ConcernKind.QUARANTINED: counts.quarantined,
        }
    )
    failed = tallies[MessageState.FAILED] + tallies[MessageState.GIVEN_UP]
    return {
        "": CountsAndConcerns(
            tallies[MessageState.PROCESSING], tallies[MessageState.WAITING], failed, +concerns, +details
        )
    }


def _count_failures_by_module_and_answer(counts: UnfinishedMessageCounts) -> Counter[ConcernKindSubjectAndCause]:
    """Count failed and given-up messages by module, with the module's last answer, and those behind another one."""
    newest = dict[Module, tuple[str, str]]()
    for each in counts.counts:
        for module, answer in each.answers.items():
            newest[module] = max(newest.get(module, answer), answer)
    details = Counter[ConcernKindSubjectAndCause]()
    for each in counts.counts:
        if each.state not in (MessageState.FAILED, MessageState.GIVEN_UP):
            continue
        kind = ConcernKind(each.state)
        for module, failed in each.failed_in.items():
            lines = newest[module][1].strip().splitlines() if module in newest else []
            details[ConcernKindSubjectAndCause(kind, module, lines[0] if lines else "")] += failed
        details[ConcernKindSubjectAndCause(kind, cause="behind another message")] += each.behind
    return details


GAUGE_INTERVAL_SECONDS: Final = 15.0

OPEN_GAUGE: Final = Gauge("haulage_addresses_open", "Unfinished address messages by state.", ["topic", "state"])
OLDEST_GAUGE: Final = Gauge(
    "haulage_addresses_oldest_seconds", "Age of the oldest unfinished address message by state.", ["topic", "state"]
)
FAILED_GAUGE: Final = Gauge(
    "haulage_addresses_failed_in", "Unfinished address messages that failed in a module.", ["topic", "module"]
)

_log = log.get(__name__)


async def update_gauges_forever(database: Database, defaults: AddressSettings) -> None:
    """Update the gauges of unfinished messages until cancelled."""
    while True:
        try:
            retries = (await addresses.load_effective_settings(database, defaults)).failed_cycles_max
            set_gauges_of_unfinished_messages(await cycle.count_unfinished_messages(database, retries))
        except Exception as error:  # noqa: BLE001 (the next update may succeed)
            _log.warning("address_gauges_update_failed", error=repr(error))
        await asyncio.sleep(GAUGE_INTERVAL_SECONDS)


def set_gauges_of_unfinished_messages(counts: UnfinishedMessageCounts) -> None:
    for each in counts.counts:
        OPEN_GAUGE.labels(each.topic, each.state).set(each.messages)
        OLDEST_GAUGE.labels(each.topic, each.state).set(counts.compute_age_of_oldest(each))
    for topic in Topic:
        for module in Module:
            failed = sum(each.failed_in[module] for each in counts.counts if each.topic is topic)
            FAILED_GAUGE.labels(topic, module).set(failed)
