"""Order platforms: one connector for all, led by the record of what each kind can do."""

from infra.platforms.connector import Connector, Span
from infra.platforms.failures import (
    PlatformBusy,
    PlatformFailure,
    PlatformLied,
    PlatformRefused,
    PlatformSlow,
    TokenExpired,
    TooManyRows,
    ZoneDiffers,
)
from infra.platforms.pace import Pace
from infra.platforms.permits import Permits, PlatformGate, day_bucket, rate_bucket
from infra.platforms.platforms import Platforms
from infra.platforms.reading import Asked, Page
from infra.platforms.tape import Tape

__all__ = [
    "Asked",
    "Connector",
    "Pace",
    "Page",
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
