"""Audited routes that have no cell of their own in the table of what an operator can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROUTES_ON_NO_OBJECT: Final[Mapping[str, str]] = {
    "DELETE /v1/projects/{project_id}/keys/{key_id}": "keys",
    "PATCH /v1/platforms/{platform}/config": "configuration",
    "POST /v1/addresses/comparisons": "a comparison, which changes nothing",
    "POST /v1/addresses/logical-deletes:check": "it asks the modules, and changes nothing",
    "POST /v1/downloads/{task_id}/link": "a link to a file",
    "POST /v1/orders/marks": "a mark of orders to export, which changes nothing",
    "POST /v1/platforms/{platform}/reports": "a comparison, which changes nothing",
    "POST /v1/platforms/{platform}/trigger": "it does now what the schedule does within a minute",
    "POST /v1/platforms:try": "it reads one page, and keeps nothing",
    "POST /v1/projects": "projects",
    "POST /v1/projects/{project_id}/keys": "keys",
    "POST /v1/projects/{project_id}/keys/{key_id}/rotate": "keys",
    "POST /v1/projects/{project_id}/revoke": "projects",
    "POST /v1/projects/{project_id}/webhook-secrets": "secrets",
    "POST /v1/register_task": "configuration",
    "POST /v1/register_task_type": "configuration",
    "PUT /v1/addresses/config": "configuration",
    "PUT /v1/platforms/{platform}": "configuration",
    "PUT /v1/platforms/{platform}/config": "configuration",
    "PUT /v1/projects/{project_id}/quotas": "configuration",
    "PUT /v1/projects/{project_id}/transfer-permissions": "configuration",
}
"""Audited routes that act on no object of the table, and what they are about."""

EQUIVALENT_ROUTES: Final[Mapping[str, str]] = {
    "POST /v1/addresses/cycle/resume": "POST /v1/addresses/cycle/pause",
    "POST /v1/platforms/{platform}/deliveries/{delivery_id}/redeliver": (
        "POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"
    ),
    "POST /v1/platforms/{platform}/resume": "POST /v1/platforms/{platform}/pause",
    "POST /v1/resume_task_type": "POST /v1/pause_task_type",
    "POST /v1/systems/{system}/resume": "POST /v1/systems/{system}/pause",
}
"""Routes that are the opposite or the twin of one in the table."""
