"""HTTP: the transport and the rules of calls that all clients of outside services share."""

from clients.http.calls import (
    BUSY_STATUSES,
    CallConcurrencyAndRateLimiter,
    CircuitBreaker,
    RequestSize,
    RetryingServiceCaller,
    RetryPolicy,
    ServiceFailure,
    SharedRenewingToken,
    TokenAndLifeSeconds,
    parse_http_date,
    parse_retry_after,
)
from clients.http.guarded import GuardedClient
from clients.http.transport import (
    HttpResponse,
    HttpTransport,
    OpenSocket,
    TransportError,
    TransportFailureKind,
    WaitBeforeReadingBeyondSize,
)

__all__ = [
    "BUSY_STATUSES",
    "CallConcurrencyAndRateLimiter",
    "CircuitBreaker",
    "GuardedClient",
    "HttpResponse",
    "HttpTransport",
    "OpenSocket",
    "RequestSize",
    "RetryPolicy",
    "RetryingServiceCaller",
    "ServiceFailure",
    "SharedRenewingToken",
    "TokenAndLifeSeconds",
    "TransportError",
    "TransportFailureKind",
    "WaitBeforeReadingBeyondSize",
    "parse_http_date",
    "parse_retry_after",
]
