"""Keeping the intakes: every worker that serves them sees to it that one of each topic runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.service import RPCError

from domain.addresses import names
from domain.addresses.intake import IntakeOrder
from domain.addresses.messages import Topic
from infra import log, temporal
from services.services import Services
from workflows.addresses.intake import AddressIntake

LOOK_SECONDS: Final = 60.0
"""How soon an intake that somebody terminated runs again."""

_log = log.get(__name__)


async def keep(services: Services, stop: asyncio.Event) -> None:
    """Have all topics pulled until told to stop, where this installation pulls."""
    if not services.settings.addresses.pubsub.project:
        return
    while not stop.is_set():
        try:
            await start(services.engine)
        except RPCError as error:
            _log.warning("intake_not_started", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_SECONDS)


async def start(engine: Client) -> None:
    """Start the intake of each topic, unless it runs."""
    for topic in Topic:
        await engine.start_workflow(
            AddressIntake.run,
            IntakeOrder(topic=topic),
            id=names.intake_id(topic),
            task_queue=names.INTAKE_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=TypedSearchAttributes([SearchAttributePair(temporal.ROOM, names.SYSTEM)]),
            static_summary=f"pull {topic}",
        )
