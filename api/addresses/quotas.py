"""The quotas of addresses: none. Messages come from the operator's topics and belong to no project."""

from __future__ import annotations

from api.http.routes import Call
from domain.quotas import QuotaLimits, SingleQuotaUsage


async def read_usage(_call: Call, _project_id: str, _limits: QuotaLimits) -> list[SingleQuotaUsage]:
    """Return nothing: a project's key opens no route of addresses."""
    return []
