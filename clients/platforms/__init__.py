"""Order platforms: one connector for all, led by the record of what each kind can do."""

from clients.platforms.connector import Connector, Span
from clients.platforms.failures import (
    PagesAlike,
    PlatformBusy,
    PlatformFailure,
    PlatformLied,
    PlatformRefused,
    PlatformSlow,
    TokenExpired,
    TooManyRows,
    ZoneDiffers,
)
from clients.platforms.pace import Pace
from clients.platforms.permits import Permits, PlatformGate, day_bucket, rate_bucket
from clients.platforms.platforms import Platforms
from clients.platforms.reading import Asked, Page
from clients.platforms.tape import Tape

__all__ = [
    "Asked",
    "Connector",
    "Pace",
    "Page",
    "PagesAlike",
    "Permits",
    "PlatformBusy",
    "PlatformFailure",
    "PlatformGate",
    "PlatformLied",
    "PlatformRefused",
    "PlatformSlow",
    "Platforms",
    "Span",
    "Tape",
    "TokenExpired",
    "TooManyRows",
    "ZoneDiffers",
    "day_bucket",
    "rate_bucket",
]
