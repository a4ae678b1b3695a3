"""The watch: which platforms there are, and which of them nobody serves."""

from __future__ import annotations

from temporalio import activity

from domain.orders import names
from domain.orders.activity_models import AlarmsResult, PlatformsResult, PresenceResult
from infra import log
from services.services import Services
from stores.orders import health, platforms
from stores.orders.platforms import build_alarm


class OrderWatching:
    """What the watch needs of the database."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="order_platforms")
    async def platforms(self) -> PlatformsResult:
        """All platforms."""
        return PlatformsResult(platforms=await platforms.list_numbers(self._database))

    @activity.defn(name="order_note_presence")
    async def note(self, presence: PresenceResult) -> AlarmsResult:
        """Note since when nobody serves a platform; it is told once, and forgotten when somebody does."""
        alarms = AlarmsResult()
        for row in await health.note_presence(self._database, presence):
            log.get(__name__).error("platform_unserved", platform=row.platform)
            if row.notify is not None:
                alarms.alarms.append(build_alarm(row, row.notify, "orders.platform_unserved", _sentence(row.platform)))
        return alarms


def _sentence(platform: str) -> str:
    queue = names.slice_queue(platform)
    return (
        f"No worker serves platform {platform}: its orders stand still, none is lost. "
        f"Start one with `haulage worker --queues {queue}`, or `{names.PLATFORM_QUEUES}` for all platforms."
    )
