"""Downloads at the door: ask for one, watch it, steer it, fetch the file."""

# Each module declares its routes when it is imported.
from api.downloads import (
    allowance,
    attempts,
    callbacks,
    creating,
    delivery,
    overview,
    preview,
    reading,
    steering,
    streams,
)
from api.downloads.room import routes

__all__ = [
    "allowance",
    "attempts",
    "callbacks",
    "creating",
    "delivery",
    "overview",
    "preview",
    "reading",
    "routes",
    "steering",
    "streams",
]
