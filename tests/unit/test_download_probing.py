"""The first questions to a source whose large pages take too long, without a source."""

from __future__ import annotations

from itertools import chain, count, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from activities.downloads import probing
from clients.sources import RetryingPageReader
from domain.downloads.models import DownloadSpec
from domain.faults import SourceFault
from infra.settings import DownloadSettings
from tests.worlds.downloads import paging
from tests.worlds.downloads.source import PAGE_SECONDS, WorldSource
from tests.worlds.downloads.world import DownloadWorld

KEPT = Path(__file__).parents[1] / "worlds" / "downloads" / "kept"


class WorldPages:
    """Pages of a world's source; one that is answered too late raises at once what a client raises after its wait."""

    def __init__(self, world: DownloadWorld) -> None:
        self._source = WorldSource(world)

    async def fetch_page(self, page: int, page_size: int) -> bytes:
        answer = self._source.ask(page, page_size)
        if answer.pause_seconds > PAGE_SECONDS:
            raise SourceFault("source_timeout", f"{page_size} rows take too long", "", transient=True)
        return answer.body

    def release_large_page_slot_if_held(self) -> None:
        """Nothing is remembered."""


@pytest.mark.parametrize("name", ["a-cap", "a-cap-with-stride"])
async def test_a_cap_is_found_with_fewer_rows_where_large_pages_take_too_long(name: str) -> None:
    """No page behind the first comes in time at the size that would show the cap; pages of the size found are whole."""
    world = DownloadWorld.model_validate_json((KEPT / f"{name}-where-large-pages-are-too-slow.json").read_text())
    spec = DownloadSpec(
        task_id="t", project_id="p", file_name="rows.csv", page_size=world.page_size, first_page=world.counts_from
    )
    source = RetryingPageReader(DownloadSettings(), WorldPages(world), world.counts_from)

    look = await probing.probe_table(source, spec, drawing=None, more_columns=[])

    size = look.probe.extent.page_size
    pages = takewhile(bool, (paging.read_page(world, page, size) for page in count()))
    assert list(chain.from_iterable(page for page in pages if isinstance(page, list))) == list(range(world.rows))


async def test_an_answer_that_is_nested_too_deeply_is_a_fault() -> None:
    """No reader of JSON takes it; the step would be repeated for hours."""
    deep = b'{"total": 1, "data": [{"a": %b}]}' % (b"[" * 1_000_000 + b"]" * 1_000_000)
    pages: Any = SimpleNamespace(fetch_page=AsyncMock(return_value=deep), release_large_page_slot_if_held=lambda: None)
    source = RetryingPageReader(DownloadSettings(), pages)

    with pytest.raises(SourceFault, match="nested in each other too deeply"):
        await probing.probe_table(
            source, DownloadSpec(task_id="t", project_id="p", file_name="f.csv"), drawing=None, more_columns=[]
        )
