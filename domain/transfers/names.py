"""Names of the system: its task queues and workflows."""

from __future__ import annotations

JOB_WORKFLOW = "TransferJob"

FILE_QUEUE = "transfers-files"

QUEUE = "transfers"
SYSTEM = "transfers"
JOIN = "join"
