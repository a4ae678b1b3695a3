"""What the overview shows of addresses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

from domain.addresses.states import State
from domain.workload import ConcernKind, ItemCount, Workload, Workloads
from infra.database import Database
from infra.settings import AddressSettings, Settings
from services.addresses import configuration
from services.services import Services
from stores.addresses import counting

UNIT: Final = "messages"
HAS_PROJECTS: Final = False


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """Failed messages stay until somebody sees to them."""
    return None


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """What counts messages that are not done."""
    return partial(_count, services.database, services.settings.addresses)


async def _count(database: Database, defaults: AddressSettings) -> Workloads:
    retries = (await configuration.in_force(database, defaults)).retries
    counts = await counting.count(database, retries)
    tallies: defaultdict[State, ItemCount] = defaultdict(ItemCount)
    for each in counts.counts:
        tallies[each.state] += ItemCount(each.messages, each.oldest_at)
    concerns = Counter(
        {ConcernKind.GIVEN_UP: tallies[State.GIVEN_UP].count, ConcernKind.QUARANTINED: counts.quarantined}
    )
    failed = tallies[State.FAILED] + tallies[State.GIVEN_UP]
    return {"": Workload(tallies[State.PROCESSING], tallies[State.WAITING], failed, +concerns)}
