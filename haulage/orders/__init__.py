"""Typed client of orders: platforms and their slices with the administrator's key, orders with a project's."""

from haulage.orders.client import Orders
from haulage.orders.models import (
    Backfill,
    BackfillState,
    LastSliceReread,
    ListedPlatform,
    Order,
    OrderMark,
    OrderSlice,
    Platform,
    PlatformConfig,
    PlatformSchedule,
    PlatformSetup,
    SettingValue,
    SliceChoice,
    SlicesActionResult,
    SliceState,
    UnchangedSlice,
    Window,
)

__all__ = [
    "Backfill",
    "BackfillState",
    "LastSliceReread",
    "ListedPlatform",
    "Order",
    "OrderMark",
    "OrderSlice",
    "Orders",
    "Platform",
    "PlatformConfig",
    "PlatformSchedule",
    "PlatformSetup",
    "SettingValue",
    "SliceChoice",
    "SliceState",
    "SlicesActionResult",
    "UnchangedSlice",
    "Window",
]
