"""Reading a window until it is confirmed: what has moved is read again, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from activities.orders.reading import Harvest, Reading
from infra.platforms import PlatformLied
from sims.platforms import checker
from sims.platforms.scenario import Changes, Faults, Kind
from tests.support.platforms import KINDS, RunningConnector, running_connector

CROWDED: dict[str, Any] = {"orders": 12_000, "span_seconds": 7_200, "crowd_share": 0.2, "crowd_seconds": 600}
BACKWARD: tuple[Kind, ...] = ("plain", "taobao", "pinduoduo")
LEAVING = Changes(per_page=0.05, created_share=0, in_window_share=1)


def missing(here: RunningConnector, harvest: Harvest, truth: dict[str, checker.State]) -> list[str]:
    """Orders that are in the window at the end and were not told."""
    return [order_id for order_id in truth if order_id not in harvest.copies]


@pytest.mark.parametrize("kind", BACKWARD)
async def test_only_what_has_moved_is_read_again(kind: Kind) -> None:
    """Some orders leave while a window of many pages is read: all that stay are told, for few pages more."""
    passes = 0
    for seed in range(4):
        async with running_connector(kind=kind, seed=seed, changes=LEAVING, **CROWDED) as here:
            window = here.window(1_500, until_seconds_ago=600)
            pages = -(-len(here.truth(window)) // here.connector.capability.paging.size)
            harvest = await Reading(here.connector, window, None).confirmed()
            assert missing(here, harvest, here.truth(window)) == []
        assert len(harvest.sheets) < 2 * pages
        passes = max(passes, harvest.passes)
    assert passes > 1, "nothing moved: nothing was shown"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_restless_window_is_read_to_its_end(kind: Kind, seed: int) -> None:
    """O10: changes before every second page, crowds at the edges of parts: nothing that stays is missed."""
    changes = Changes(per_page=0.5, created_share=0, in_window_share=1)
    async with running_connector(kind=kind, seed=seed, changes=changes, **CROWDED) as here:
        window = here.window(600, until_seconds_ago=600)
        harvest = await Reading(here.connector, window, None).confirmed()
        assert missing(here, harvest, here.truth(window)) == []


async def test_a_quiet_window_is_read_once() -> None:
    """Two counts and its pages."""
    async with running_connector(**CROWDED) as here:
        window = here.window(1_200)
        harvest = await Reading(here.connector, window, None).confirmed()
        assert (harvest.passes, harvest.total) == (1, len(here.truth(window)))
        assert here.platform.calls["told"] == len(harvest.sheets) + 2


async def test_totals_that_are_never_reached_are_a_lie() -> None:
    """Looked into part by part, but not for ever."""
    async with running_connector(faults=Faults(total_off=2), **CROWDED) as here:
        window = here.window(1_200)
        with pytest.raises(PlatformLied, match="does not come to rest"):
            await Reading(here.connector, window, None).confirmed()
        pages = len(here.truth(window)) // 100
        assert here.platform.calls["told"] < 2 * pages + 40


async def test_parts_are_not_counted_where_the_filter_is_not_heeded() -> None:
    """Orders from outside make the counts of parts worthless: the whole is read again."""
    changes = Changes(per_page=0.02, created_share=0)
    async with running_connector(
        orders=500, span_seconds=3_600, changes=changes, faults=Faults(ignore_filter=True)
    ) as here:
        harvest = await Reading(here.connector, here.window(600), None).confirmed()
        assert harvest.outside
        assert len(harvest.copies) == 500
