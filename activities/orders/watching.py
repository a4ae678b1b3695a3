"""The watch: which platforms there are, and which of them nobody serves."""

from __future__ import annotations

from sqlmodel import col, select
from temporalio import activity

from domain.orders import names
from domain.orders.steps import Alarms, Presence, Watched
from infra import log
from services.services import Services
from stores.orders import ledger
from stores.orders.alarms import alarm
from stores.tables.orders import OrderPlatform


class OrderWatching:
    """What the watch needs of the database."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="order_platforms")
    async def platforms(self) -> Watched:
        """All platforms."""
        async with self._database.session() as session:
            found = await session.exec(select(OrderPlatform.platform).order_by(col(OrderPlatform.platform)))
            return Watched(platforms=list(found))

    @activity.defn(name="order_note_presence")
    async def note(self, presence: Presence) -> Alarms:
        """Note since when nobody serves a platform; it is told once, and forgotten when somebody does."""
        alarms = Alarms()
        async with self._database.session() as session:
            now = await ledger.database_now(session)
            named = [*presence.served, *presence.unserved]
            rows = await session.exec(
                select(OrderPlatform).where(col(OrderPlatform.platform).in_(named)).with_for_update()
            )
            for row in rows:
                is_served = row.platform in presence.served
                if not is_served and row.unserved_since is None:
                    log.get(__name__).error("platform_unserved", platform=row.platform)
                    row.unserved_since = now
                    if row.notify is not None:
                        alarms.alarms.append(
                            alarm(row, row.notify, "orders.platform_unserved", _sentence(row.platform))
                        )
                elif is_served:
                    row.unserved_since = None
                session.add(row)
        return alarms


def _sentence(platform: str) -> str:
    queue = names.slice_queue(platform)
    return (
        f"No worker serves platform {platform}: its orders stand still, none is lost. "
        f"Start one with `haulage worker --queues {queue}`, or `{names.PLATFORM_QUEUES}` for all platforms."
    )
