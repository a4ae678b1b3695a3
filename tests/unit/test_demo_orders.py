"""What the demo says of orders that differ from the platform's."""

from __future__ import annotations

from demo import orders
from sims.platforms.checker import Findings

NEW_YEAR_US = 1_767_225_600_000_000


def test_the_orders_that_differ_are_named_with_their_times() -> None:
    """A count alone does not help to find out why."""
    ledger = {"ids": ["7", "8"], "modified_us": [NEW_YEAR_US + 3_000_000, NEW_YEAR_US + 60_000_000], "versions": [1, 1]}
    findings = Findings(lost=["7"], stale=["8"], duplicated=[], invented=[], regressed=[])

    named = orders.list_first_differences(ledger, findings)

    assert named == "7 of 2026-01-01 00:00:03, 8 of 2026-01-01 00:01:00"
