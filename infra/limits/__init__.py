"""The limiter: what all processes together may do, counted in PostgreSQL."""

from infra.limits.gate import HostGate
from infra.limits.limiter import Limiter

__all__ = ["HostGate", "Limiter"]
