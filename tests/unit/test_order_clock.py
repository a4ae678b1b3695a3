"""The clock of a platform that tells local times: one that is put back by a step of summer time is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.orders.window_checks import require_clock_not_put_back
from clients.platforms import WrongTimeZone
from domain.orders.capability import Capability
from domain.orders.declarations import TimeFormat, TimeNotation
from domain.orders.known_platforms import SHOPIFY, TAOBAO
from sims.platforms.dialects.plain import PLAIN

LOCAL = {"form": TimeNotation.SPACED}


def with_clock(**moments: Any) -> Capability:
    """A platform whose clock tells such times."""
    clock = PLAIN.clock.model_copy(update={"moments": TimeFormat.model_validate(moments)})
    return PLAIN.model_copy(update={"clock": clock})


@pytest.mark.parametrize(("before", "after"), [(0, -3_600), (3_600, 0), (7_205, 1), (10, -1_795)])
def test_a_local_clock_that_is_put_back_is_refused(before: float, after: float) -> None:
    """The hour that it tells again was read already: orders of its second time would be left out for ever."""
    with pytest.raises(WrongTimeZone, match="was put back by"):
        require_clock_not_put_back(TAOBAO, datetime.now(UTC) + timedelta(seconds=after), before)


@pytest.mark.parametrize(
    ("record", "before", "after"),
    [
        (TAOBAO, None, -3_600),
        (TAOBAO, 0, 3_600),
        (TAOBAO, 0, -600),
        (TAOBAO, 5_000, 0),
        (SHOPIFY, 0, -3_600),
        (PLAIN, 0, -3_600),
        (with_clock(**LOCAL, zone="Europe/Berlin"), 0, -3_600),
    ],
    ids=["first", "forward", "a little", "no step", "header", "by its zone", "named zone"],
)
def test_any_other_change_of_a_clock_is_its_own_matter(record: Capability, before: float | None, after: float) -> None:
    """Slices go by it: nothing is read twice or left out."""
    require_clock_not_put_back(record, datetime.now(UTC) + timedelta(seconds=after), before)
