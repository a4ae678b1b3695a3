"""Names of the system: its task queues and workflows."""

from __future__ import annotations

CLOSE_TO, STATUS, JOINED = "close_to", "status", "joined"

JOB_WORKFLOW = "TransferJob"

FILE_QUEUE = "transfers-files"

QUEUE = "transfers"
QUEUES = (QUEUE, FILE_QUEUE)
PURGE = "transfer_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "transfers"
JOIN = "join"
