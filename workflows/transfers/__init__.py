"""The plan of transfers: a job collects its targets, then ships them in shards from a host that has the file."""

from workflows.transfers.job import FILE_QUEUE, QUEUE, TransferJob

__all__ = ["FILE_QUEUE", "QUEUE", "TransferJob"]
