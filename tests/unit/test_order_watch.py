"""The scan for backfills that no workflow leads any more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest
from temporalio.testing import ActivityEnvironment

from activities.orders import watch
from activities.orders.watch import OverdueScanActivities
from domain.orders.slices import BACKFILL_TERMINATED
from infra import temporal
from stores.orders import backfills, health
from stores.orders.health import StaleSlicesAndScanTimes
from tests.unit.test_order_backfills import NOON


@pytest.mark.parametrize("attempt", [1, 2])
async def test_what_the_scan_has_closed_is_looked_for_only_where_it_is_repeated(
    attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs every 20 seconds, and finds the running ones by an index; Temporal is asked about these alone."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    call: str = environment.run(temporal.get_activity_call)
    rows = [
        SimpleNamespace(backfill_id="closed", workflow_id="closed", closed_by=call),
        SimpleNamespace(backfill_id="running", workflow_id="running", closed_by=None),
    ]
    listed, asked, close = AsyncMock(return_value=rows), AsyncMock(return_value=False), AsyncMock(return_value=None)
    monkeypatch.setattr(backfills, "list_running_backfills", listed)
    monkeypatch.setattr(backfills, "close_as_failed", close)
    monkeypatch.setattr(watch, "is_workflow_running", asked)
    monkeypatch.setattr(health, "list_platforms_with_stale_unbegun_slices", AsyncMock(return_value=[]))
    overdue = AsyncMock(return_value=StaleSlicesAndScanTimes([], NOON, NOON))
    monkeypatch.setattr(health, "list_slices_claimed_too_long_ago", overdue)
    monkeypatch.setattr(health, "mark_reported_and_load_overdue_platforms", AsyncMock(return_value=(set(), {})))
    services = MagicMock()
    services.settings.orders.stale_hours = 1

    await environment.run(OverdueScanActivities(services).report_stale_slices_and_close_lost_backfills)

    assert listed.await_args is not None
    assert listed.await_args.args[1] == (call if attempt > 1 else None)
    assert [each.args[1] for each in asked.await_args_list] == ["running"]
    assert [each.args[1:] for each in close.await_args_list] == [
        ("closed", BACKFILL_TERMINATED, call),
        ("running", BACKFILL_TERMINATED, call),
    ]
