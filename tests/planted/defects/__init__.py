"""Defects that each break one promise, by system."""

from __future__ import annotations

from tests.planted.defects import addresses, downloads, orders, shared, suite, tasks, transfers, webhooks

DEFECTS = (
    *downloads.DEFECTS,
    *transfers.DEFECTS,
    *orders.DEFECTS,
    *addresses.DEFECTS,
    *tasks.DEFECTS,
    *webhooks.DEFECTS,
    *shared.DEFECTS,
    *suite.DEFECTS,
)
