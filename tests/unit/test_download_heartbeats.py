"""Steps that look at the store send heartbeats from their beginning: a slow store must not cost every attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.downloads import activities
from activities.downloads.activities import DownloadActivities, DownloadHousekeeping
from domain.downloads.activity_models import FetchRangeInput, TableProbe
from domain.downloads.models import DownloadSpec
from domain.downloads.plan import PageRange, SourceExtent
from domain.downloads.shape import TableShape

SPEC = DownloadSpec(task_id="t", project_id="p", file_name="f.csv")
FETCH = FetchRangeInput(
    spec=SPEC,
    probe=TableProbe(extent=SourceExtent(total=1, page_size=1), shape=TableShape(columns=["a"]), row_bytes=1),
    pages=PageRange(index=0, first=0, end=1),
    ranges=1,
    slice_seconds=1,
)


class Reached(Exception):
    """The first call of a store was waited for with heartbeats."""


class SlowStore:
    """A store whose first call takes until a heartbeat was sent."""

    def __init__(self) -> None:
        self.beat = asyncio.Event()

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def call(*_: Any, **__: Any) -> None:
            async with asyncio.timeout(10):
                await self.beat.wait()
            raise Reached

        return call


@pytest.mark.parametrize("step", ["fetch", "discard", "sweep", "expire"])
async def test_the_first_call_of_a_store_is_waited_for_with_heartbeats(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each attempt would be taken for lost before it has begun."""
    store, environment = SlowStore(), ActivityEnvironment()
    environment.on_heartbeat = lambda *_: store.beat.set()
    monkeypatch.setattr(activities, "DatabaseLimiter", lambda _: store)
    monkeypatch.setattr(activities, "catalogue", store)
    settings = SimpleNamespace(
        worker=SimpleNamespace(render_slots=1, fetch_slots=1),
        downloads=SimpleNamespace(rows_kept_days=1),
        api=SimpleNamespace(idempotency_kept_days=1),
    )
    services: Any = SimpleNamespace(database=None, objects=store, engine=None, settings=settings)
    steps, housekeeping = DownloadActivities(services), DownloadHousekeeping(services)
    calls: dict[str, tuple[Any, ...]] = {
        "fetch": (steps.fetch_range, FETCH),
        "discard": (steps.delete_unfinished, SPEC),
        "sweep": (housekeeping.remove_abandoned_staging_and_old_rows,),
        "expire": (housekeeping.remove_expired_files,),
    }

    with pytest.raises(Reached):
        await environment.run(*calls[step])
