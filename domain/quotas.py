"""The quotas of a project: their limits, how much of each is used, and the refusal of what is beyond one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from domain.faults import QuotaExhausted

QUOTA_EXCEEDED: Final = "quota_exceeded"
STREAMS_QUOTA: Final = "streams_per_project"
"""Set by `HAULAGE_API__STREAMS_PER_PROJECT` for all projects alike."""
PREVIEWS_QUOTA: Final = "previews"
PREVIEWS_OF_PROJECT_QUOTA: Final = "previews_per_project"
LIMIT_MAX: Final = 10**15
TASKS_PER_REQUEST_MAX: Final = 1_000
OPEN_RETRY_SECONDS: Final = 5
"""When to ask again for open work: nothing predicts when some of it ends."""
STANDING_RETRY_SECONDS: Final = 3_600
"""When to ask again for what stays until a person acts."""
MINUTE_SECONDS: Final = 60
DAY_SECONDS: Final = 24 * 3600

Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
TaskBatchLimit = Annotated[int, Field(ge=1, le=TASKS_PER_REQUEST_MAX)]


class DownloadQuotaLimits(BaseModel):
    """The quotas of one party. A download is active until its file is ready or it has failed."""

    model_config = ConfigDict(frozen=True)

    downloads_per_minute: Limit = 60
    active: Limit = 10
    bytes_per_day: Limit = Field(default=20_000_000_000, description="of created files")
    rows_per_day: Limit = Field(default=500_000_000, description="in created files")


class QuotaLimits(BaseModel):
    """The quotas of each project; the administrator may set others for one project."""

    model_config = ConfigDict(frozen=True)

    requests_per_minute: Limit = Field(default=60_000, description="requests with its keys, in each API process")
    downloads_per_minute: Limit = Field(default=60, description="downloads that it starts")
    downloads_active: Limit = Field(default=10, description="downloads that have not ended")
    download_bytes_per_day: Limit = Field(default=20_000_000_000, description="of created files")
    download_rows_per_day: Limit = Field(default=500_000_000, description="in created files")
    task_types: Limit = Field(default=200, description="registered types of tasks")
    tasks_open: Limit = Field(default=1_000_000, description="tasks that have not ended")
    tasks_per_request: TaskBatchLimit = Field(
        default=TASKS_PER_REQUEST_MAX, description="tasks that one request creates"
    )
    tasks_per_day: Limit = Field(default=50_000_000, description="tasks that it creates")
    transfer_jobs_open: Limit = Field(default=200, description="transfer jobs that have not ended")
    transfer_targets_open: Limit = Field(default=200_000, description="targets of transfers that have not ended")
    transfer_targets_per_day: Limit = Field(default=10_000_000, description="targets that it asks to send a file to")
    transfer_bytes_per_day: Limit = Field(
        default=100_000_000_000_000, description="bytes that reached targets: of a file, once for each"
    )
    platforms: Limit = Field(default=100, description="platforms of orders")
    platform_requests_per_day: Limit = Field(default=10_000_000, description="requests to its platforms")

    def with_overrides(self, overrides: Mapping[str, int]) -> Self:
        """Return the quotas of a project for which some were set; a name of a later version is ignored."""
        known = {name: value for name, value in overrides.items() if name in type(self).model_fields}
        return self.model_copy(update=known)

    @property
    def downloads(self) -> DownloadQuotaLimits:
        """The quotas of downloads, as operators have them too."""
        return DownloadQuotaLimits(
            downloads_per_minute=self.downloads_per_minute,
            active=self.downloads_active,
            bytes_per_day=self.download_bytes_per_day,
            rows_per_day=self.download_rows_per_day,
        )


@dataclass(frozen=True, slots=True)
class SingleQuotaUsage:
    """How much of a quota is used."""

    name: str
    """A field of `QuotaLimits`."""

    used: int | None
    """None for a quota of one request, of which nothing is used up."""

    resets_in_seconds: float | None = None
    """When some of it comes back; None if that is unknown or nothing is used."""


def build_day_bucket_name(quota: str, project_id: str) -> str:
    """Return the bucket of what a project uses up of a quota of a day."""
    return f"{quota}:{project_id}"


def build_quota_exceeded_fault(
    names: Sequence[str], message: str, hint: str, retry_after_seconds: float
) -> QuotaExhausted:
    """Build the refusal of a request that is beyond quotas."""
    return QuotaExhausted(
        QUOTA_EXCEEDED, message, hint, violated=names, retry_after_seconds=max(1, ceil(retry_after_seconds))
    )
