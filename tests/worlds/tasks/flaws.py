"""Flaws of those who use the queues; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import PASSES, Kind


class TaskFlawGroup(StrEnum):
    """Who does it; a world has at most one flaw of each."""

    WORKERS = "workers"
    REPORTS = "reports"
    RETRIES = "retries"
    CALLERS = "callers"
    OPERATORS = "operators"


KINDS: Mapping[str, Kind] = {
    # how workers hold tasks
    "slow_worker": Kind(1, TaskFlawGroup.WORKERS, passes=PASSES),
    "worker_dies": Kind(2, TaskFlawGroup.WORKERS, passes=PASSES),
    "beats_late": Kind(3, TaskFlawGroup.WORKERS, passes=PASSES),
    "ends_with_its_lease": Kind(5, TaskFlawGroup.WORKERS, passes=PASSES),
    "workers_die_always": Kind(12, TaskFlawGroup.WORKERS),
    "clock_ahead": Kind(14, TaskFlawGroup.WORKERS, passes=PASSES),
    "clock_behind": Kind(14, TaskFlawGroup.WORKERS, passes=PASSES),
    # how they speak
    "stale_report": Kind(6, TaskFlawGroup.REPORTS, passes=PASSES),
    "hold_lost": Kind(9, TaskFlawGroup.REPORTS, passes=PASSES),
    "report_lost": Kind(10, TaskFlawGroup.REPORTS, passes=PASSES),
    "report_twice": Kind(10, TaskFlawGroup.REPORTS, passes=PASSES),
    # how often tasks fail
    "delayed_retry_first": Kind(8, TaskFlawGroup.RETRIES, passes=PASSES),
    "fails_often": Kind(12, TaskFlawGroup.RETRIES, passes=PASSES),
    "fails_to_the_end": Kind(12, TaskFlawGroup.RETRIES),
    # what callers do
    "create_lost": Kind(4, TaskFlawGroup.CALLERS, passes=PASSES),
    "create_lost_without_name": Kind(4, TaskFlawGroup.CALLERS, passes=PASSES),
    "create_differs": Kind(4, TaskFlawGroup.CALLERS),
    "steady_priority": Kind(15, TaskFlawGroup.CALLERS, passes=PASSES),
    "daisy_chain": Kind(18, TaskFlawGroup.CALLERS, passes=PASSES),
    "starts_later": Kind(7, TaskFlawGroup.CALLERS, passes=PASSES),
    "odd_texts": Kind(19, TaskFlawGroup.CALLERS, passes=PASSES),
    "text_refused": Kind(19, TaskFlawGroup.CALLERS),
    "burst": Kind(20, TaskFlawGroup.CALLERS, passes=PASSES),
    "unknown_type": Kind(20, TaskFlawGroup.CALLERS),
    "read_at_once": Kind(20, TaskFlawGroup.CALLERS, passes=PASSES),
    # what operators do
    "cancelled": Kind(11, TaskFlawGroup.OPERATORS),
    "put_back": Kind(11, TaskFlawGroup.OPERATORS, passes=PASSES),
    "paused": Kind(20, TaskFlawGroup.OPERATORS, passes=PASSES),
    "config_changed": Kind(12, TaskFlawGroup.OPERATORS, passes=PASSES),
}
OVERDUE = frozenset({"slow_worker", "worker_dies", "beats_late", "workers_die_always", "clock_ahead", "clock_behind"})
"""Flaws with which leases run out."""
