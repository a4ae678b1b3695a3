"""Order platforms: one connector for all kinds, led by their declared capabilities."""

from clients.platforms.answers import AnswerLog, OrderPage, QueryBounds
from clients.platforms.connector import Connector, ConnectorFactory, Span
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
from clients.platforms.permits import Permits, PlatformGate, TimeBudget, day_bucket, rate_bucket

__all__ = [
    "AnswerLog",
    "Connector",
    "ConnectorFactory",
    "OrderPage",
    "PagesAlike",
    "Permits",
    "PlatformBusy",
    "PlatformFailure",
    "PlatformGate",
    "PlatformLied",
    "PlatformRefused",
    "PlatformSlow",
    "QueryBounds",
    "Span",
    "TimeBudget",
    "TokenExpired",
    "TooManyRows",
    "ZoneDiffers",
    "day_bucket",
    "rate_bucket",
]
