"""The quotas of downloads: what a project, and each of its operators, may start, keep active and produce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from domain.downloads.models import DownloadSpec
from domain.limits import LimitDecision, RateDemand, SlotDemand, UncheckedSpending
from domain.quotas import DAY_SECONDS, MINUTE_SECONDS, DownloadQuotaLimits
from infra.database import Database
from infra.limits import DatabaseLimiter

LEASE_MARGIN_SECONDS: Final = 600
"""How long after its time limit the slot of a download expires if it was not released."""


class QuotaKind(StrEnum):
    """What a quota counts."""

    DOWNLOADS = "downloads"
    ACTIVE = "active"
    BYTES = "bytes"
    ROWS = "rows"


class QuotaScope(StrEnum):
    """The party that a quota applies to."""

    PROJECT = "project"
    OPERATOR = "operator"


_NAMES: Final = {
    QuotaKind.DOWNLOADS: "downloads_per_minute",
    QuotaKind.ACTIVE: "downloads_active",
    QuotaKind.BYTES: "download_bytes_per_day",
    QuotaKind.ROWS: "download_rows_per_day",
}
"""Fields of `QuotaLimits`."""


@dataclass(frozen=True, slots=True)
class ProjectAndOperatorLimits:
    """The limits of a project, and those of each operator within it."""

    project: DownloadQuotaLimits
    operator: DownloadQuotaLimits


@dataclass(frozen=True, slots=True)
class QuotaWithDecision:
    """A quota, and its state after a request."""

    scope: QuotaScope
    kind: QuotaKind
    limit: int
    verdict: LimitDecision

    @property
    def name(self) -> str:
        """The name in headers and problems."""
        return _NAMES[self.kind] if self.scope is QuotaScope.PROJECT else f"{self.scope}_{_NAMES[self.kind]}"


async def take_quotas_all_or_none(
    database: Database, settings: ProjectAndOperatorLimits, spec: DownloadSpec
) -> list[QuotaWithDecision]:
    """Count a submission and take the slots of an active download; take nothing if a quota is used up.

    A repeated call for a download that is active counts nothing.
    """
    owners = _list_quota_owners(spec.project_id, spec.operator_id)
    demands = _build_demands_on_each_quota(settings, owners, spec)
    return _build_quota_states(demands, await DatabaseLimiter(database).take_all_or_none(*_split_demands(demands)))


async def get_quota_states_without_counting(
    database: Database, settings: ProjectAndOperatorLimits, project_id: str, operator_id: str | None
) -> list[QuotaWithDecision]:
    """Return the quotas without counting anything."""
    demands = _build_demands_on_each_quota(settings, _list_quota_owners(project_id, operator_id))
    return _build_quota_states(demands, await DatabaseLimiter(database).decide_without_taking(*_split_demands(demands)))


async def take_active_slots_beyond_quota(database: Database, spec: DownloadSpec) -> None:
    """Take the slots of a running download, even beyond the quota."""
    owners = _list_quota_owners(spec.project_id, spec.operator_id)
    await DatabaseLimiter(database).take_slots_ignoring_limits(
        [_build_active_slot_demand(owner, spec, 1) for owner in owners]
    )


async def release_slots_unless_renewed(database: Database, spec: DownloadSpec, expires_at: datetime) -> None:
    """Release the slots that a download took until this moment, unless it has taken them anew since."""
    keys = [owner.build_limit_key(QuotaKind.ACTIVE) for owner in _list_quota_owners(spec.project_id, spec.operator_id)]
    await DatabaseLimiter(database).release_slots_unless_renewed(keys, spec.task_id, expires_at)


async def release_slots_and_count_file_size(
    database: Database,
    project_id: str,
    operator_id: str | None,
    task_id: str,
    *,
    file_bytes: int = 0,
    file_rows: int = 0,
) -> None:
    """Release the slots of a download that ended, and count bytes and rows of its file; repeated calls do nothing."""
    owners = _list_quota_owners(project_id, operator_id)
    sizes = ((QuotaKind.BYTES, file_bytes), (QuotaKind.ROWS, file_rows))
    spendings = [
        UncheckedSpending(owner.build_limit_key(kind), size, DAY_SECONDS) for owner in owners for kind, size in sizes
    ]
    await DatabaseLimiter(database).release_slots_and_spend_once(
        [owner.build_limit_key(QuotaKind.ACTIVE) for owner in owners], task_id, spendings
    )


@dataclass(frozen=True, slots=True)
class _ProjectOrOperatorOfQuota:
    scope: QuotaScope
    name: str

    def build_limit_key(self, kind: QuotaKind) -> str:
        return f"downloads:{kind}:{self.name}"


def _list_quota_owners(project_id: str, operator_id: str | None) -> list[_ProjectOrOperatorOfQuota]:
    project = _ProjectOrOperatorOfQuota(QuotaScope.PROJECT, project_id)
    return (
        [project]
        if operator_id is None
        else [project, _ProjectOrOperatorOfQuota(QuotaScope.OPERATOR, f"{project_id}:{operator_id}")]
    )


def _build_demands_on_each_quota(
    settings: ProjectAndOperatorLimits, owners: list[_ProjectOrOperatorOfQuota], spec: DownloadSpec | None = None
) -> dict[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand]:
    """Build the demands on each quota; without a spec they demand nothing."""
    found: dict[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand] = {}
    for owner in owners:
        limits = settings.project if owner.scope is QuotaScope.PROJECT else settings.operator
        found[owner.scope, QuotaKind.DOWNLOADS] = RateDemand(
            owner.build_limit_key(QuotaKind.DOWNLOADS),
            0 if spec is None else 1,
            limits.downloads_per_minute,
            MINUTE_SECONDS,
        )
        found[owner.scope, QuotaKind.ACTIVE] = _build_active_slot_demand(owner, spec, limits.active)
        # The size of the file is not known yet, so a download is admitted as long as any bytes and rows are left.
        sizes = ((QuotaKind.BYTES, limits.bytes_per_day), (QuotaKind.ROWS, limits.rows_per_day))
        for kind, limit in sizes:
            found[owner.scope, kind] = RateDemand(owner.build_limit_key(kind), 0, limit, DAY_SECONDS)
    return found


def _build_active_slot_demand(owner: _ProjectOrOperatorOfQuota, spec: DownloadSpec | None, limit: int) -> SlotDemand:
    if spec is None:
        return SlotDemand(owner.build_limit_key(QuotaKind.ACTIVE), "", limit, 0)
    return SlotDemand(
        owner.build_limit_key(QuotaKind.ACTIVE), spec.task_id, limit, spec.max_exec_seconds + LEASE_MARGIN_SECONDS
    )


def _split_demands(
    demands: Mapping[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand],
) -> tuple[list[RateDemand], list[SlotDemand]]:
    return (
        [demand for demand in demands.values() if isinstance(demand, RateDemand)],
        [demand for demand in demands.values() if isinstance(demand, SlotDemand)],
    )


def _build_quota_states(
    demands: Mapping[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand], decisions: Sequence[LimitDecision]
) -> list[QuotaWithDecision]:
    rates, slots = _split_demands(demands)
    of = dict(zip([*rates, *slots], decisions, strict=True))
    return [QuotaWithDecision(scope, kind, demand.limit, of[demand]) for (scope, kind), demand in demands.items()]
