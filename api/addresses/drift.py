"""Comparisons of the four modules, as workbooks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from pydantic import AwareDatetime, Field, computed_field
from temporalio.client import Client

from api.addresses.context import routes
from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess
from domain.addresses import names
from domain.addresses.activity_models import ComparisonNameInput, ModuleComparisonCounts
from domain.addresses.names import WORKBOOK_CONTENT_TYPE
from domain.addresses.operations import Module
from domain.faults import Missing
from infra.objects import ObjectMissing
from workflows.addresses import handle
from workflows.addresses.handle import WorkflowProgress

LINK_SECONDS: Final = 900
LISTED_MAX: Final = 20

_MANIFEST_SUFFIX: Final = names.build_comparison_manifest_key("").removeprefix(names.DRIFT_PREFIX)
_NAME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_NAME_PATTERN: Final = r"^[0-9]{8}T[0-9]{6}Z$"


class ComparisonPath(Request):
    """The name of a comparison: the time at which it was requested."""

    report: str = Field(pattern=_NAME_PATTERN, examples=["20261120T134600Z"])


class ComparisonCounts(Response):
    """The result of a comparison."""

    made_at: AwareDatetime
    compared: int = Field(description="UPRNs that at least one module has")
    live: dict[Module, int] = Field(description="UPRNs that each module has")
    different: int
    presence: int = Field(description="of these: only some modules have the UPRN")
    address_id: int = Field(description="of these: it has different addresses")
    record: int = Field(description="of these: the records differ")
    under_way: int = Field(
        description="of the differences in the workbook: those with an unfinished message, which may explain them"
    )
    shown: int = Field(description="differences in the workbook")
    url: str = Field(description="a link to the workbook, valid for 15 minutes")


class ComparisonResponse(Response):
    """The progress of a comparison."""

    report: str
    progress: WorkflowProgress
    fault: str | None = Field(description="why it failed")
    found: ComparisonCounts | None

    @computed_field(description="the workflow's id in Temporal, until its retention ends")  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def workflow_id(self) -> str:
        """The workflow of the comparison."""
        return names.build_comparison_workflow_id(self.report)


class ComparisonSummary(Response):
    """A comparison in a list."""

    report: str
    ordered_at: AwareDatetime
    progress: WorkflowProgress
    compared: int | None = Field(description="UPRNs that at least one module has")
    different: int | None


class ComparisonsResponse(Response):
    items: list[ComparisonSummary]


@routes.get("/v1/addresses/drift", access=RouteAccess.ADMIN)
async def list_comparisons(call: Call) -> ComparisonsResponse:
    """List the latest comparisons, newest first, at most twenty."""
    engine, store = call.services.engine, call.services.objects
    keys = {each.key.removeprefix(names.DRIFT_PREFIX) for each in await store.list(names.DRIFT_PREFIX)}
    done = {key.removesuffix(_MANIFEST_SUFFIX) for key in keys if key.endswith(_MANIFEST_SUFFIX)}
    begun = {each async for each in _list_comparison_names_in_engine(engine)}
    # Earlier code named its manifests in other ways.
    named = (each for each in done | begun if re.match(_NAME_PATTERN, each))
    newest = sorted(named, reverse=True)[:LISTED_MAX]
    return ComparisonsResponse(
        items=await asyncio.gather(*(_build_comparison_summary_with_progress(call, report) for report in newest))
    )


@routes.post("/v1/addresses/drift", access=RouteAccess.ADMIN, status=HTTPStatus.ACCEPTED)
async def start_comparison(call: Call) -> ComparisonResponse:
    """Compare all addresses of the four modules; this reads each address once."""
    report = datetime.now(UTC).strftime(_NAME_FORMAT)
    await handle.start_comparison(call.services.engine, ComparisonNameInput(report=report))
    return ComparisonResponse(report=report, progress=WorkflowProgress.RUNNING, fault=None, found=None)


@routes.get("/v1/addresses/drift/{report}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_comparison(call: Call, path: ComparisonPath) -> ComparisonResponse:
    """Show the progress of a comparison, and its result with a link to the workbook."""
    found = await _load_comparison_counts_with_link(call, path.report)
    if found is not None:
        return ComparisonResponse(report=path.report, progress=WorkflowProgress.DONE, fault=None, found=found)
    engine, workflow_id = call.services.engine, names.build_comparison_workflow_id(path.report)
    match await handle.read_workflow_progress(engine, workflow_id):
        case WorkflowProgress.FAILED:
            why = await handle.read_root_cause_of_failed_workflow(engine, workflow_id)
            return ComparisonResponse(report=path.report, progress=WorkflowProgress.FAILED, fault=why, found=None)
        case WorkflowProgress.RUNNING | WorkflowProgress.DONE as progress:
            return ComparisonResponse(report=path.report, progress=progress, fault=None, found=None)
        case None:
            raise Missing("not_found", f"There is no comparison {path.report}.", "POST /v1/addresses/drift starts one.")


async def _list_comparison_names_in_engine(engine: Client) -> AsyncIterator[str]:
    """Yield the names of comparisons that the engine remembers, also of running and failed ones."""
    query = f"WorkflowType = '{names.DRIFT_WORKFLOW}'"
    async for each in engine.list_workflows(query, limit=LISTED_MAX):
        yield each.id.removeprefix(names.build_comparison_workflow_id(""))


async def _build_comparison_summary_with_progress(call: Call, report: str) -> ComparisonSummary:
    found = await _load_result_of_finished_comparison(call, report)
    progress = (
        WorkflowProgress.DONE
        if found
        else await handle.read_workflow_progress(call.services.engine, names.build_comparison_workflow_id(report))
    )
    return ComparisonSummary(
        report=report,
        ordered_at=datetime.strptime(report, _NAME_FORMAT).replace(tzinfo=UTC),
        # A comparison that the engine no longer has and that wrote no manifest has failed.
        progress=progress or WorkflowProgress.FAILED,
        compared=found.compared if found else None,
        different=found.different if found else None,
    )


async def _load_result_of_finished_comparison(call: Call, report: str) -> ModuleComparisonCounts | None:
    try:
        written = await call.services.objects.get(names.build_comparison_manifest_key(report))
    except ObjectMissing:
        return None
    return ModuleComparisonCounts.model_validate_json(written)


async def _load_comparison_counts_with_link(call: Call, report: str) -> ComparisonCounts | None:
    found = await _load_result_of_finished_comparison(call, report)
    if found is None:
        return None
    url = await call.services.objects.presign_download(
        found.key,
        expires_seconds=LINK_SECONDS,
        file_name=f"addresses-{report}.xlsx",
        content_type=WORKBOOK_CONTENT_TYPE,
    )
    return ComparisonCounts(**found.model_dump(exclude={"report", "key"}), url=url)
