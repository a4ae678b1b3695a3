"""HTTP: the transport and the rules of calls that all clients of outside services share."""

from clients.http.calls import (
    BUSY_STATUSES,
    CallLimiter,
    CircuitBreaker,
    RenewingToken,
    RetryPolicy,
    ServiceCaller,
    ServiceFailure,
    parse_http_date,
    parse_retry_after,
)
from clients.http.guarded import GuardedClient
from clients.http.transport import (
    HttpResponse,
    HttpTransport,
    OpenSocket,
    ReadThreshold,
    TransportError,
    TransportFault,
)

__all__ = [
    "BUSY_STATUSES",
    "CallLimiter",
    "CircuitBreaker",
    "GuardedClient",
    "HttpResponse",
    "HttpTransport",
    "OpenSocket",
    "ReadThreshold",
    "RenewingToken",
    "RetryPolicy",
    "ServiceCaller",
    "ServiceFailure",
    "TransportError",
    "TransportFault",
    "parse_http_date",
    "parse_retry_after",
]
