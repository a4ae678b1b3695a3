"""Names of the system: its task queues, workflows and their ids, and its schedules."""

from __future__ import annotations

from typing import Final

from domain.addresses.messages import Topic

STATUS = "status"
"""The query that every workflow answers."""

CYCLE_WORKFLOW = "AddressCycle"
INTAKE_WORKFLOW = "AddressIntake"
CHECK_WORKFLOW = "AddressCheck"
PURGE_WORKFLOW = "AddressPurge"
DRIFT_WORKFLOW = "AddressDrift"

SYSTEM: Final = "addresses"

CONTENT_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

QUEUE: Final = "addresses"
"""Cycles, and what operators order."""
INTAKE_QUEUE: Final = "addresses-intake"
"""Pulling: it has workers' time of its own, so that it never waits for what cycles do."""
QUEUES: Final = (QUEUE, INTAKE_QUEUE)
PURGE: Final = "address_purge_log"
HOUSEKEEPING: Final = (PURGE,)
SCHEDULE: Final = "OSS_IM_INFI_SYNC_EVENT"
"""The schedule of cycles; its runs are named after it."""
CHECKS: Final = "addresses-check"
"""The schedule that checks logical deletes."""
REPORTS: Final = "addresses-reports/"
"""Where comparisons of modules lie, under the moments when they were ordered."""


def intake_id(topic: Topic) -> str:
    """The id of the workflow that pulls a topic."""
    return f"addresses-intake:{topic}"


def purge_id(request_id: str) -> str:
    """The id of the workflow that purges what a request names."""
    return f"addresses-purge:{request_id}"


def drift_id(report: str) -> str:
    """The id of the workflow that compares modules."""
    return f"addresses-drift:{report}"


def drift_key(report: str) -> str:
    """Where a comparison lies."""
    return f"{REPORTS}{report}.xlsx"


def drift_manifest(key: str) -> str:
    """Where it is written what a comparison found, after its workbook."""
    return f"{key}.json"
