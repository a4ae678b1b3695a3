"""HTTP: the transport and the rules of calls that all clients of outside services share."""

from clients.http.calls import (
    BUSY_STATUSES,
    CallLimiter,
    CircuitBreaker,
    RenewingToken,
    RetryPolicy,
    ServiceCaller,
    ServiceFailure,
    TokenAndLifeSeconds,
    parse_http_date,
    parse_retry_after,
)
from clients.http.guarded import GuardedClient
from clients.http.transport import (
    HttpResponse,
    HttpTransport,
    OpenSocket,
    ReadPauseThreshold,
    TransportError,
    TransportFailureKind,
)

__all__ = [
    "BUSY_STATUSES",
    "CallLimiter",
    "CircuitBreaker",
    "GuardedClient",
    "HttpResponse",
    "HttpTransport",
    "OpenSocket",
    "ReadPauseThreshold",
    "RenewingToken",
    "RetryPolicy",
    "ServiceCaller",
    "ServiceFailure",
    "TokenAndLifeSeconds",
    "TransportError",
    "TransportFailureKind",
    "parse_http_date",
    "parse_retry_after",
]
