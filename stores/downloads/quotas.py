"""The quotas of downloads: what a project, and each of its operators, may start, keep active and produce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.downloads.models import DownloadSpec
from domain.limits import LimitDecision, RateDemand, SlotDemand, UncheckedSpending
from infra.database import Database
from infra.limits import Limiter
from infra.settings import QuotaSettings

MINUTE_SECONDS: Final = 60
DAY_SECONDS: Final = 24 * 3600
LEASE_MARGIN_SECONDS: Final = 600
"""How long after its time limit the slot of a download expires if it was not released."""


class QuotaKind(StrEnum):
    """What a quota counts."""

    SUBMISSIONS = "submissions"
    ACTIVE = "active"
    BYTES = "bytes"


class QuotaScope(StrEnum):
    """The party that a quota applies to."""

    PROJECT = "project"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class QuotaState:
    """A quota, and its state after a request."""

    scope: QuotaScope
    kind: QuotaKind
    limit: int
    verdict: LimitDecision

    @property
    def name(self) -> str:
        """The name in headers and problems."""
        return f"{self.scope}-{self.kind}"


async def admit_download(database: Database, settings: QuotaSettings, spec: DownloadSpec) -> list[QuotaState]:
    """Count a submission and take the slots of an active download; take nothing if a quota is used up.

    A repeated call for a download that is active counts nothing.
    """
    parties = _list_owners(spec.project_id, spec.operator_id)
    demands = _build_demands(settings, parties, spec)
    return _build_states(demands, await Limiter(database).take(*_split_demands(demands)))


async def read_quotas(
    database: Database, settings: QuotaSettings, project_id: str, operator_id: str | None
) -> list[QuotaState]:
    """Return the quotas without counting anything."""
    demands = _build_demands(settings, _list_owners(project_id, operator_id))
    return _build_states(demands, await Limiter(database).preview(*_split_demands(demands)))


async def hold_active_beyond_quota(database: Database, spec: DownloadSpec) -> None:
    """Take the slots of a running download, even beyond the quota."""
    parties = _list_owners(spec.project_id, spec.operator_id)
    await Limiter(database).hold([_build_slot(party, spec, 1) for party in parties])


async def release_active(
    database: Database, project_id: str, operator_id: str | None, task_id: str, *, file_bytes: int = 0
) -> None:
    """Release the slots of a download that ended, and count the bytes of its file; repeated calls have no effect."""
    parties = _list_owners(project_id, operator_id)
    booking = [UncheckedSpending(party.key(QuotaKind.BYTES), file_bytes, DAY_SECONDS) for party in parties]
    await Limiter(database).release([party.key(QuotaKind.ACTIVE) for party in parties], task_id, booking)


@dataclass(frozen=True, slots=True)
class _QuotaOwner:
    scope: QuotaScope
    name: str

    def key(self, kind: QuotaKind) -> str:
        return f"downloads:{kind}:{self.name}"


def _list_owners(project_id: str, operator_id: str | None) -> list[_QuotaOwner]:
    project = _QuotaOwner(QuotaScope.PROJECT, project_id)
    return (
        [project] if operator_id is None else [project, _QuotaOwner(QuotaScope.OPERATOR, f"{project_id}:{operator_id}")]
    )


def _build_demands(
    settings: QuotaSettings, parties: list[_QuotaOwner], spec: DownloadSpec | None = None
) -> dict[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand]:
    """Build the demands on each quota; without a spec they demand nothing."""
    found: dict[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand] = {}
    for party in parties:
        limits = settings.project if party.scope is QuotaScope.PROJECT else settings.operator
        found[party.scope, QuotaKind.SUBMISSIONS] = RateDemand(
            party.key(QuotaKind.SUBMISSIONS), 0 if spec is None else 1, limits.submissions_per_minute, MINUTE_SECONDS
        )
        found[party.scope, QuotaKind.ACTIVE] = _build_slot(party, spec, limits.active)
        # The size of the file is not known yet, so a download is admitted as long as any bytes are left.
        found[party.scope, QuotaKind.BYTES] = RateDemand(
            party.key(QuotaKind.BYTES), 0, limits.bytes_per_day, DAY_SECONDS
        )
    return found


def _build_slot(party: _QuotaOwner, spec: DownloadSpec | None, limit: int) -> SlotDemand:
    if spec is None:
        return SlotDemand(party.key(QuotaKind.ACTIVE), "", limit, 0)
    return SlotDemand(party.key(QuotaKind.ACTIVE), spec.task_id, limit, spec.max_exec_seconds + LEASE_MARGIN_SECONDS)


def _split_demands(
    demands: Mapping[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand],
) -> tuple[list[RateDemand], list[SlotDemand]]:
    return (
        [demand for demand in demands.values() if isinstance(demand, RateDemand)],
        [demand for demand in demands.values() if isinstance(demand, SlotDemand)],
    )


def _build_states(
    demands: Mapping[tuple[QuotaScope, QuotaKind], RateDemand | SlotDemand], verdicts: Sequence[LimitDecision]
) -> list[QuotaState]:
    rates, slots = _split_demands(demands)
    of = dict(zip([*rates, *slots], verdicts, strict=True))
    return [QuotaState(scope, kind, demand.limit, of[demand]) for (scope, kind), demand in demands.items()]
