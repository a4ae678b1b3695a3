"""Orders at the door: platforms and their configuration, slices and marks, and the orders themselves."""

# Each module declares its routes when it is imported.
from api.orders import (
    backfills,
    browsing,
    callbacks,
    configuring,
    overview,
    platforms,
    reports,
    schedules,
    slices,
    source,
    steering,
    timeline,
)
from api.orders.room import routes

__all__ = [
    "backfills",
    "browsing",
    "callbacks",
    "configuring",
    "overview",
    "platforms",
    "reports",
    "routes",
    "schedules",
    "slices",
    "source",
    "steering",
    "timeline",
]
