"""Names of the system: its task queues, workflows and their ids, schedules, and object keys."""

from __future__ import annotations

from typing import Final

from domain.addresses.messages import Topic

STATUS = "status"
"""The query that every workflow answers."""
RUNNING, SUCCEEDED = "running", "succeeded"
"""Search values of the states of purges and comparisons."""

CYCLE_WORKFLOW = "AddressCycle"
INTAKE_WORKFLOW = "AddressIntake"
CHECK_WORKFLOW = "AddressCheck"
PURGE_WORKFLOW = "AddressPurge"
COMPARISON_WORKFLOW = "AddressComparison"

SYSTEM: Final = "addresses"

WORKBOOK_CONTENT_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

QUEUE: Final = "addresses"
"""The queue of cycles, checks, purges and comparisons."""
INTAKE_QUEUE: Final = "addresses-intake"
"""The queue of pulls. They have worker slots of their own, so that intake never waits for a cycle."""
QUEUES: Final = (QUEUE, INTAKE_QUEUE)
PURGE_LOG_ACTIVITY: Final = "address_purge_log"
HOUSEKEEPING: Final = (PURGE_LOG_ACTIVITY,)
CYCLE_SCHEDULE: Final = "OSS_IM_INFI_SYNC_EVENT"
"""The schedule of cycles; its runs are named after it."""
CHECK_SCHEDULE: Final = "addresses-check"
"""The schedule that checks logical deletes."""
COMPARISON_PREFIX: Final = "addresses-comparisons/"
"""The prefix of the object keys of comparisons; each is named by the time at which it was requested."""


def build_intake_workflow_id(topic: Topic) -> str:
    """Return the id of the workflow that pulls a topic."""
    return f"addresses-intake:{topic}"


def build_purge_workflow_id(request_id: str) -> str:
    """Return the id of the workflow that carries out a purge."""
    return f"addresses-purge:{request_id}"


def build_comparison_workflow_id(comparison_id: str) -> str:
    """Return the id of the workflow that compares the modules."""
    return f"addresses-comparison:{comparison_id}"


def build_comparison_workbook_key(comparison_id: str, attempt: str) -> str:
    """Return the object key of the workbook that an attempt at a comparison writes."""
    return f"{COMPARISON_PREFIX}{comparison_id}/{attempt}.xlsx"


def build_comparison_manifest_key(comparison_id: str) -> str:
    """Return the object key of a comparison's manifest, which is written after the workbook that it names."""
    return f"{COMPARISON_PREFIX}{comparison_id}.json"
