"""Order platforms: one connector for all kinds, led by their declared capabilities."""

from clients.platforms.answers import AnswerLog, OrderPage, QueryBounds
from clients.platforms.connector import Connector, ConnectorFactory, TimeRange
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
    PlatformSharedState,
    ProjectRequestQuota,
    RequestPermits,
    TimeBudget,
    build_day_bucket_name,
    build_project_bucket_name,
    build_rate_bucket_name,
)

__all__ = [
    "AnswerLog",
    "AttemptTimeUsedUp",
    "Connector",
    "ConnectorFactory",
    "CredentialsRefused",
    "IdenticalPages",
    "InconsistentAnswers",
    "OrderPage",
    "PlatformBusy",
    "PlatformFailure",
    "PlatformRefused",
    "PlatformSharedState",
    "ProjectRequestQuota",
    "QueryBounds",
    "RequestPermits",
    "TimeBudget",
    "TimeRange",
    "TooManyRows",
    "WrongTimeZone",
    "build_day_bucket_name",
    "build_project_bucket_name",
    "build_rate_bucket_name",
]
