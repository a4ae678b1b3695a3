"""What the workflows of orders are found by in the engine."""

from __future__ import annotations

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from domain.orders import names
from infra import temporal


def attributes(project_id: str, state: str = "pending") -> TypedSearchAttributes:
    """What the room's workflows are found by in the engine."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(temporal.ROOM, names.SYSTEM),
            SearchAttributePair(temporal.PROJECT, project_id),
            SearchAttributePair(temporal.STATE, state),
        ]
    )
