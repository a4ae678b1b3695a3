"""Names of the system: task queues, workflow types and ids, schedules, and keys in the object store."""

from __future__ import annotations

import re
from typing import Final

from domain.orders import windows
from domain.orders.windows import TimeWindow

CYCLE_WORKFLOW = "OrderCycle"
SLICE_WORKFLOW = "OrderSlice"
STATUS: Final = "status"
"""The query of a slice's status."""
BACKFILL_WORKFLOW = "OrderBackfill"
REPORT_WORKFLOW = "OrderReport"
WATCH_WORKFLOW = "OrderWatch"

SYSTEM = "orders"

CONTENT_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
"""Of the workbook of a report."""

PLATFORM_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,39}$"

QUEUE: Final = "orders"
"""Workflows, and the activities that need only the database."""
QUEUES: Final = (QUEUE,)
"""The queues of platforms are created with them."""
PURGE: Final = "order_purge"
HOUSEKEEPING: Final = (PURGE,)
PLATFORM_QUEUES: Final = "orders-*"
"""The name for the queues of all platforms."""
EXPORT_ROUTE: Final = "/v1/orders/source"
"""The route of our own API that exports of orders fetch."""
WATCH: Final = "orders-watch"
RAW: Final = "orders-raw/"
"""Raw pages of readings, as Parquet."""
END_PAUSE: Final = "end_pause"
"""The signal that has a slice make its next attempt now."""
REDO_SUFFIX: Final = "redo"
"""Suffix of every reading that was asked for: a slice is not read again twice at the same time."""
STAGING: Final = "orders-staging/"
"""Answers received by attempts that had to stop."""

_PREFIX: Final = "orders-"
_CONTROL: Final = ":control"
_REPORTS: Final = ":reports"
_REPORT_FILES: Final = "orders-reports/"


def build_slice_queue_name(platform: str) -> str:
    """Return the queue of a platform's slices."""
    return f"{_PREFIX}{platform}"


def build_control_queue_name(platform: str) -> str:
    """Return the queue on which the same workers answer at once, however many slices they read."""
    return f"{_PREFIX}{platform}{_CONTROL}"


def build_report_queue_name(platform: str) -> str:
    """Return the queue on which the same workers build reports, one at a time, without taking threads of slices."""
    return f"{_PREFIX}{platform}{_REPORTS}"


def parse_platform_of_slice_queue(queue: str) -> str | None:
    """Return the platform whose slices a queue has; None for any other queue."""
    platform = queue.removeprefix(_PREFIX)
    return platform if queue.startswith(_PREFIX) and re.fullmatch(PLATFORM_PATTERN, platform) else None


def build_slice_workflow_id(platform: str, window: TimeWindow, suffix: str = "") -> str:
    """Return the id of a slice's workflow; redos and sweeps have a suffix."""
    return f"order-slice:{platform}:{window}{suffix and ':'}{suffix}"


def build_cycle_schedule_id(platform: str) -> str:
    """Return the id of a platform's schedule, which is the prefix of its runs' ids."""
    return f"order-cycle:{platform}"


def build_backfill_workflow_id(platform: str, window: TimeWindow, suffix: str = "") -> str:
    """Return the id of a backfill's workflow; one that Temporal's schedule started has a suffix."""
    return f"order-backfill:{platform}:{window}{suffix and ':'}{suffix}"


def build_report_workflow_id(platform: str, day: str) -> str:
    """Return the id of a report's workflow."""
    return f"order-report:{platform}:{day}"


def list_workflow_id_prefixes(platform: str) -> tuple[str, ...]:
    """Return the prefixes of the ids of all workflows that read a platform, whatever their windows and suffixes."""
    return f"order-backfill:{platform}:", f"order-report:{platform}:", f"order-slice:{platform}:"


def build_raw_pages_key(platform: str, window: TimeWindow, attempt_id: str) -> str:
    """Return the key of a reading's raw pages, partitioned as Parquet readers expect."""
    day = window.start.date().isoformat()
    name = f"{windows.format_time_in_id(window.start)}-{windows.format_time_in_id(window.end)}-{attempt_id}"
    return f"{RAW}platform={platform}/day={day}/{name}.parquet"


def build_answer_log_key(platform: str, window: TimeWindow, attempt_id: str) -> str:
    """Return the key of the answers that an attempt received before it had to stop."""
    start, end = windows.format_time_in_id(window.start), windows.format_time_in_id(window.end)
    return f"{STAGING}{platform}/{start}-{end}-{attempt_id}"


def build_report_parts_prefix(platform: str, day: str, run: str) -> str:
    """Return the prefix of the parts of a report until they are compared."""
    return f"{STAGING}{platform}/report-{day}-{run}/"


def build_report_workbook_key(platform: str, day: str) -> str:
    """Return the key of a day's workbook."""
    return f"{_REPORT_FILES}{platform}/{day}.xlsx"


def build_report_manifest_key(workbook_key: str) -> str:
    """Return the key of a report's figures, which are written after its workbook."""
    return f"{workbook_key}.json"
