"""What the overview shows of addresses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

from domain.addresses.messages import MessageState
from domain.workload import ConcernKind, ItemCount, Workload, Workloads
from infra.database import Database
from infra.settings import AddressSettings, Settings
from services.addresses import configuration
from services.services import Services
from stores.addresses import workload

UNIT: Final = "messages"
HAS_PROJECTS: Final = False


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """Failed messages stay until somebody sees to them."""
    return None


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """What counts messages that are not done."""
    return partial(_count, services.database, services.settings.addresses)


async def _count(database: Database, defaults: AddressSettings) -> Workloads:
    retries = (await configuration.load_settings(database, defaults)).retries
    counts = await workload.count_unfinished(database, retries)
    tallies: defaultdict[MessageState, ItemCount] = defaultdict(ItemCount)
    for each in counts.counts:
        tallies[each.state] += ItemCount(each.messages, each.oldest_at)
    concerns = Counter(
        {ConcernKind.GIVEN_UP: tallies[MessageState.GIVEN_UP].count, ConcernKind.QUARANTINED: counts.quarantined}
    )
    failed = tallies[MessageState.FAILED] + tallies[MessageState.GIVEN_UP]
    return {"": Workload(tallies[MessageState.PROCESSING], tallies[MessageState.WAITING], failed, +concerns)}
