"""Limits that hold for all processes together, counted in PostgreSQL."""

from infra.limits.host_gate import HostRequestLimiter
from infra.limits.limiter import DatabaseLimiter

__all__ = ["DatabaseLimiter", "HostRequestLimiter"]
