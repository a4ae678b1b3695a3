"""Typed client of transfers: one file to many hosts, followed until every host has it or it is known why not."""

from haulage.transfers.client import PartlyRequested, Transfers
from haulage.transfers.models import (
    RetryJob,
    Target,
    TargetsFailedAlike,
    TargetStatus,
    TransferFile,
    TransferJob,
    TransferJobSummary,
    TransferState,
    TransferTask,
)

__all__ = [
    "PartlyRequested",
    "RetryJob",
    "Target",
    "TargetStatus",
    "TargetsFailedAlike",
    "TransferFile",
    "TransferJob",
    "TransferJobSummary",
    "TransferState",
    "TransferTask",
    "Transfers",
]
