"""What an attempt was told before it had to stop, kept in the store for the next one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from clients.platforms import Tape
from domain.orders import names
from domain.orders.activity_models import ReadSliceInput
from domain.orders.capability import Capability
from domain.orders.slices import ResumePoint
from infra import log
from infra.objects import ObjectMissing, ObjectStore


async def taken_up(objects: ObjectStore, order: ReadSliceInput, capability: Capability) -> Tape:
    """What was told before; nothing where it has grown too old, and a platform's tokens lead nowhere any more."""
    place, good_seconds = order.place, capability.paging.token_seconds
    if place is None:
        return Tape()
    age = datetime.now(UTC) - place.kept_at
    if good_seconds is not None and age > timedelta(seconds=good_seconds):
        log.get(__name__).info("order_place_expired", platform=order.platform, window=str(order.window))
        return Tape()
    try:
        body = await objects.get(place.key)
    except ObjectMissing:
        return Tape()
    if place.older is not None:
        await objects.delete(place.older)
    return await asyncio.to_thread(Tape.decoded, body)


async def kept(objects: ObjectStore, order: ReadSliceInput, tape: Tape) -> ResumePoint | None:
    """Keep what has been told, so that it need not be asked for again."""
    if not tape.gained:
        return order.place
    key = names.staging_key(order.platform, order.window, order.holder.rpartition("/")[2])
    body = await asyncio.to_thread(tape.encoded)
    await objects.put(key, body)
    return ResumePoint(key=key, older=order.place.key if order.place else None, kept_at=datetime.now(UTC))


async def cleared(objects: ObjectStore, order: ReadSliceInput) -> None:
    """Remove what nobody needs any more."""
    for key in (order.place.key, order.place.older) if order.place else ():
        if key is not None:
            await objects.delete(key)
