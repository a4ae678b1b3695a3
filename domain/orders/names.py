"""Names of the system: its task queues, workflows and their ids, schedules, and where raw pages lie in the store."""

from __future__ import annotations

import re
from typing import Final

from domain.orders import windows
from domain.orders.windows import TimeWindow

CYCLE_WORKFLOW = "OrderCycle"
SLICE_WORKFLOW = "OrderSlice"
BACKFILL_WORKFLOW = "OrderBackfill"
REPORT_WORKFLOW = "OrderReport"
WATCH_WORKFLOW = "OrderWatch"

SYSTEM = "orders"

CONTENT_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

PLATFORM_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,39}$"

QUEUE: Final = "orders"
"""Plans, and the steps that need the database alone."""
QUEUES: Final = (QUEUE,)
"""Those of platforms come and go with them."""
PURGE: Final = "order_purge"
HOUSEKEEPING: Final = (PURGE,)
PLATFORM_QUEUES: Final = "orders-*"
"""In place of a queue's name: those of all platforms."""
WATCH: Final = "orders-watch"
RAW: Final = "orders-raw/"
REDO_SUFFIX: Final = "redo"
"""Names every reading that somebody asked for: a slice is not read again twice at a time."""
STAGING: Final = "orders-staging/"
"""What attempts were told that had to stop."""

_PREFIX: Final = "orders-"
_DESK: Final = ":desk"
_REPORTS: Final = ":reports"


def slice_queue(platform: str) -> str:
    """Where a platform's slices wait for the workers that serve it."""
    return f"{_PREFIX}{platform}"


def desk_queue(platform: str) -> str:
    """Where the same workers answer at once, however many slices they read."""
    return f"{_PREFIX}{platform}{_DESK}"


def report_queue(platform: str) -> str:
    """Where the same workers compare days, one at a time, beside the slices and not among them."""
    return f"{_PREFIX}{platform}{_REPORTS}"


def served_platform(queue: str) -> str | None:
    """The platform whose queue a worker was told to serve."""
    platform = queue.removeprefix(_PREFIX)
    return platform if queue.startswith(_PREFIX) and re.fullmatch(PLATFORM_PATTERN, platform) else None


def slice_id(platform: str, window: TimeWindow, suffix: str = "") -> str:
    """The id of a slice's workflow; a redo and a sweep have a suffix."""
    return f"order-slice:{platform}:{window}{suffix and ':'}{suffix}"


def schedule_id(platform: str) -> str:
    """The id of a platform's schedule; its runs are named after it."""
    return f"order-cycle:{platform}"


def backfill_id(platform: str, window: TimeWindow, suffix: str = "") -> str:
    """The id of the workflow that reads a time again; one that Temporal's schedule began has a suffix."""
    return f"order-backfill:{platform}:{window}{suffix and ':'}{suffix}"


def report_id(platform: str, day: str) -> str:
    """The id of the workflow that compares a day."""
    return f"order-report:{platform}:{day}"


def raw_key(platform: str, window: TimeWindow, reading: str) -> str:
    """Where the pages of a reading lie: partitioned as Parquet's readers expect it."""
    day = window.start.date().isoformat()
    name = f"{windows.format_stamp(window.start)}-{windows.format_stamp(window.end)}-{reading}"
    return f"{RAW}platform={platform}/day={day}/{name}.parquet"


def staging_key(platform: str, window: TimeWindow, reading: str) -> str:
    """Where it lies what an attempt was told before it had to stop."""
    return f"{STAGING}{platform}/{windows.format_stamp(window.start)}-{windows.format_stamp(window.end)}-{reading}"


def report_parts(platform: str, day: str, run: str) -> str:
    """Where the parts of a comparison lie until they are compared."""
    return f"{STAGING}{platform}/report-{day}-{run}/"


def report_key(platform: str, day: str) -> str:
    """Where a day's comparison lies."""
    return f"orders-reports/{platform}/{day}.xlsx"


def report_manifest(key: str) -> str:
    """Where it is written what a comparison found, after its workbook."""
    return f"{key}.json"
