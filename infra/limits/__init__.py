"""Limits that hold for all processes together, counted in PostgreSQL."""

from infra.limits.host_gate import HostRequestLimiter
from infra.limits.limiter import DatabaseLimiter, spend_in_transaction

__all__ = ["DatabaseLimiter", "HostRequestLimiter", "spend_in_transaction"]
