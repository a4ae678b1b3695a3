"""Drift: the four modules compared, UPRN by UPRN, as a workbook."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from pydantic import AwareDatetime, Field
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from activities.addresses.reporting import CONTENT_TYPE
from api.addresses import orders
from api.addresses.orders import Progress
from api.addresses.room import routes
from api.models import Answer, Request
from api.routes import Access, Call
from domain.addresses import places
from domain.addresses.drift import DriftOrder, DriftReport
from domain.addresses.operations import Module
from domain.faults import Missing
from infra.objects import ObjectMissing
from workflows.addresses import AddressDrift

LINK_SECONDS: Final = 900

_REPORT: Final = r"^[0-9]{8}T[0-9]{6}Z$"


class DriftPath(Request):
    """Names one comparison: by the moment when it was ordered."""

    report: str = Field(pattern=_REPORT, examples=["20261120T134600Z"])


class Found(Answer):
    """What a comparison found."""

    made_at: AwareDatetime
    compared: int = Field(description="UPRNs that any module has")
    live: dict[Module, int] = Field(description="UPRNs that each module has")
    different: int
    presence: int = Field(description="of these: only some modules have the UPRN")
    address_id: int = Field(description="of these: it has different addresses")
    record: int = Field(description="of these: the records differ")
    under_way: int = Field(description="of those shown: with a message that is not done, which may explain them")
    shown: int = Field(description="in the workbook")
    url: str = Field(description="the workbook, for a quarter of an hour")


class ShownDrift(Answer):
    """How far a comparison is."""

    report: str
    progress: Progress
    fault: str | None = Field(description="of one that failed: why")
    found: Found | None


@routes.post("/v1/addresses/drift", access=Access.ADMIN, status=HTTPStatus.ACCEPTED)
async def compare(call: Call) -> ShownDrift:
    """Compare all addresses of the four modules; this reads each of them once."""
    report = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    await call.services.engine.start_workflow(
        AddressDrift.run,
        DriftOrder(report=report),
        id=places.drift_id(report),
        task_queue=places.QUEUE,
        # Who asks twice in a second gets one.
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=orders.attributes(),
        static_summary="compare modules",
    )
    return ShownDrift(report=report, progress=Progress.RUNNING, fault=None, found=None)


@routes.get("/v1/addresses/drift/{report}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_drift(call: Call, path: DriftPath) -> ShownDrift:
    """See how far a comparison is, and what it found, with a link to the workbook."""
    found = await _found(call, path.report)
    if found is not None:
        return ShownDrift(report=path.report, progress=Progress.DONE, fault=None, found=found)
    engine, workflow_id = call.services.engine, places.drift_id(path.report)
    match await orders.progress(engine, workflow_id):
        case Progress.FAILED:
            why = await orders.fault(engine, workflow_id)
            return ShownDrift(report=path.report, progress=Progress.FAILED, fault=why, found=None)
        case Progress.RUNNING | Progress.DONE as progress:
            return ShownDrift(report=path.report, progress=progress, fault=None, found=None)
        case None:
            raise Missing(
                "not_found", f"There is no comparison {path.report}.", "POST /v1/addresses/drift makes one of now."
            )


async def _found(call: Call, report: str) -> Found | None:
    key = places.drift_key(report)
    try:
        written = await call.services.objects.get(places.drift_manifest(key))
    except ObjectMissing:
        return None
    found = DriftReport.model_validate_json(written)
    url = await call.services.objects.presign(
        key, expires_seconds=LINK_SECONDS, file_name=f"addresses-{report}.xlsx", content_type=CONTENT_TYPE
    )
    return Found(**found.model_dump(exclude={"report", "key"}), url=url)
