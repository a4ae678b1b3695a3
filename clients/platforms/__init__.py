"""Order platforms: one connector for all kinds, led by their declared capabilities."""

from clients.platforms.answers import InclusiveQueryTimes, OrderPage, ReplayableAnswerLog
from clients.platforms.connector import PlatformConnector, PlatformConnectorFactory, TimeRangeWithExclusiveEnd
from clients.platforms.failures import (
    AttemptTimeUsedUp,
    CredentialsRefused,
    IdenticalPages,
    InconsistentAnswers,
    PlatformBusy,
    PlatformFailure,
    PlatformRefused,
    TooManyRows,
    WrongTimeZone,
)
from clients.platforms.permits import (
    AttemptTimeBudget,
    DailyQuotaOfAllPlatforms,
    PlatformStateSharedByConnectors,
    RequestPermits,
    build_day_bucket_name,
    build_project_bucket_name,
    build_rate_bucket_name,
)

__all__ = [
    "AttemptTimeBudget",
    "AttemptTimeUsedUp",
    "CredentialsRefused",
    "DailyQuotaOfAllPlatforms",
    "IdenticalPages",
    "InclusiveQueryTimes",
    "InconsistentAnswers",
    "OrderPage",
    "PlatformBusy",
    "PlatformConnector",
    "PlatformConnectorFactory",
    "PlatformFailure",
    "PlatformRefused",
    "PlatformStateSharedByConnectors",
    "ReplayableAnswerLog",
    "RequestPermits",
    "TimeRangeWithExclusiveEnd",
    "TooManyRows",
    "WrongTimeZone",
    "build_day_bucket_name",
    "build_project_bucket_name",
    "build_rate_bucket_name",
]
