"""Limits that hold for all processes together, counted in PostgreSQL."""

from infra.limits.host_gate import HostRequestLimiter
from infra.limits.limiter import Limiter

__all__ = ["HostRequestLimiter", "Limiter"]
