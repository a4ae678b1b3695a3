"""Orders at the door: platforms and their configuration, slices and marks, and the orders themselves."""

# Each module declares its routes when it is imported.
from api.orders import (
    backfills,
    browsing,
    callbacks,
    configuring,
    platforms,
    reports,
    schedules,
    slices,
    source,
    steering,
    timeline,
    workload,
)
from api.orders.room import routes

__all__ = [
    "backfills",
    "browsing",
    "callbacks",
    "configuring",
    "platforms",
    "reports",
    "routes",
    "schedules",
    "slices",
    "source",
    "steering",
    "timeline",
    "workload",
]
