"""The quotas of downloads: what a project, and each operator of it, may start, keep active and make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.downloads.models import DownloadOrder
from domain.limits import LimitDecision, RateDemand, SlotDemand, UncheckedSpending
from infra.database import Database
from infra.limits import Limiter
from infra.settings import QuotaSettings

MINUTE_SECONDS: Final = 60
DAY_SECONDS: Final = 24 * 3600
LEASE_MARGIN_SECONDS: Final = 600
"""How much longer than a download may take its slot is kept, should nobody release it."""


class Kind(StrEnum):
    """What is counted."""

    SUBMISSIONS = "submissions"
    ACTIVE = "active"
    BYTES = "bytes"


class Scope(StrEnum):
    """Whom it is counted for."""

    PROJECT = "project"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota, and how it stands after a request."""

    scope: Scope
    kind: Kind
    limit: int
    verdict: LimitDecision

    @property
    def name(self) -> str:
        """How callers know it."""
        return f"{self.scope}-{self.kind}"


async def admit(database: Database, settings: QuotaSettings, order: DownloadOrder) -> list[Quota]:
    """Count a submission and take the slots of an active download, or nothing where a quota is used up.

    To admit a download again while it is active counts nothing.
    """
    parties = _parties(order.project_id, order.operator_id)
    demands = _demands(settings, parties, order)
    return _told(demands, await Limiter(database).take(*_apart(demands)))


async def standing(
    database: Database, settings: QuotaSettings, project_id: str, operator_id: str | None
) -> list[Quota]:
    """How the quotas stand, for who only asks."""
    demands = _demands(settings, _parties(project_id, operator_id))
    return _told(demands, await Limiter(database).preview(*_apart(demands)))


async def hold_active(database: Database, order: DownloadOrder) -> None:
    """Note that a download is at work, however it came to be: its slots are taken, whatever the quota says."""
    parties = _parties(order.project_id, order.operator_id)
    await Limiter(database).hold([_slot(party, order, 1) for party in parties])


async def release_active(
    database: Database, project_id: str, operator_id: str | None, task_id: str, *, file_bytes: int = 0
) -> None:
    """Give back the slots of a download that ended, and book the bytes of its file; once, however often it is told."""
    parties = _parties(project_id, operator_id)
    booking = [UncheckedSpending(party.key(Kind.BYTES), file_bytes, DAY_SECONDS) for party in parties]
    await Limiter(database).release([party.key(Kind.ACTIVE) for party in parties], task_id, booking)


@dataclass(frozen=True, slots=True)
class _Party:
    scope: Scope
    name: str

    def key(self, kind: Kind) -> str:
        return f"downloads:{kind}:{self.name}"


def _parties(project_id: str, operator_id: str | None) -> list[_Party]:
    project = _Party(Scope.PROJECT, project_id)
    return [project] if operator_id is None else [project, _Party(Scope.OPERATOR, f"{project_id}:{operator_id}")]


def _demands(
    settings: QuotaSettings, parties: list[_Party], order: DownloadOrder | None = None
) -> dict[tuple[Scope, Kind], RateDemand | SlotDemand]:
    """What an order takes of each quota; without one, nothing."""
    found: dict[tuple[Scope, Kind], RateDemand | SlotDemand] = {}
    for party in parties:
        limits = settings.project if party.scope is Scope.PROJECT else settings.operator
        found[party.scope, Kind.SUBMISSIONS] = RateDemand(
            party.key(Kind.SUBMISSIONS), 0 if order is None else 1, limits.submissions_per_minute, MINUTE_SECONDS
        )
        found[party.scope, Kind.ACTIVE] = _slot(party, order, limits.active)
        # How many bytes it will be nobody knows yet: it is let in while any are left.
        found[party.scope, Kind.BYTES] = RateDemand(party.key(Kind.BYTES), 0, limits.bytes_per_day, DAY_SECONDS)
    return found


def _slot(party: _Party, order: DownloadOrder | None, limit: int) -> SlotDemand:
    if order is None:
        return SlotDemand(party.key(Kind.ACTIVE), "", limit, 0)
    return SlotDemand(party.key(Kind.ACTIVE), order.task_id, limit, order.max_exec_seconds + LEASE_MARGIN_SECONDS)


def _apart(demands: Mapping[tuple[Scope, Kind], RateDemand | SlotDemand]) -> tuple[list[RateDemand], list[SlotDemand]]:
    return (
        [demand for demand in demands.values() if isinstance(demand, RateDemand)],
        [demand for demand in demands.values() if isinstance(demand, SlotDemand)],
    )


def _told(
    demands: Mapping[tuple[Scope, Kind], RateDemand | SlotDemand], verdicts: Sequence[LimitDecision]
) -> list[Quota]:
    rates, slots = _apart(demands)
    of = dict(zip([*rates, *slots], verdicts, strict=True))
    return [Quota(scope, kind, demand.limit, of[demand]) for (scope, kind), demand in demands.items()]
