"""What the administrator of a platform is told."""

from __future__ import annotations

from domain.orders.activity_models import Alarm
from domain.sealed import SealedText
from stores.tables.orders import OrderPlatform


def alarm(row: OrderPlatform, notify: str, kind: str, message: str) -> Alarm:
    """What the administrator of a platform is told."""
    return Alarm(
        platform=row.platform, project_id=row.project_id, notify=SealedText(token=notify), type=kind, message=message
    )
