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
from domain.addresses.activity_models import ComparisonIdInput, ModuleComparisonCounts
from domain.addresses.names import WORKBOOK_CONTENT_TYPE
from domain.addresses.operations import Module
from domain.faults import FaultRecord, Missing
from infra.objects import ObjectMissing
from workflows.addresses import handle
from workflows.addresses.handle import WorkflowState

LINK_SECONDS: Final = 900
LISTED_MAX: Final = 20

_MANIFEST_SUFFIX: Final = names.build_comparison_manifest_key("").removeprefix(names.COMPARISON_PREFIX)
_ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_ID_PATTERN: Final = r"^[0-9]{8}T[0-9]{6}Z$"


class ComparisonPath(Request):
    """The id of a comparison: the time at which it was requested."""

    comparison_id: str = Field(pattern=_ID_PATTERN, examples=["20261120T134600Z"])


class ComparisonCounts(Response):
    """The result of a comparison."""

    made_at: AwareDatetime
    compared: int = Field(description="UPRNs that at least one module has")
    uprns_by_module: dict[Module, int] = Field(description="UPRNs that each module has")
    different: int
    presence_differs: int = Field(description="of these: only some modules have the UPRN")
    address_id_differs: int = Field(description="of these: it has different addresses")
    record_differs: int = Field(description="of these: the records differ")
    in_workbook: int = Field(description="differences in the workbook")
    with_unfinished_message: int = Field(
        description="of the differences in the workbook: those with an unfinished message, which may explain them"
    )
    url: str = Field(description="a link to the workbook, valid for 15 minutes")


class ComparisonResponse(Response):
    """The progress of a comparison."""

    comparison_id: str
    state: WorkflowState
    fault: FaultRecord | None = Field(description="why it failed")
    found: ComparisonCounts | None

    @computed_field(description="the workflow's id in Temporal, until its retention ends")  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def workflow_id(self) -> str:
        """The workflow of the comparison."""
        return names.build_comparison_workflow_id(self.comparison_id)


class ComparisonSummary(Response):
    """A comparison in a list."""

    comparison_id: str
    requested_at: AwareDatetime
    state: WorkflowState
    compared: int | None = Field(description="UPRNs that at least one module has")
    different: int | None


class ComparisonsResponse(Response):
    items: list[ComparisonSummary]


@routes.get("/v1/addresses/comparisons", access=RouteAccess.ADMIN)
async def list_comparisons(call: Call) -> ComparisonsResponse:
    """List the latest comparisons, newest first, at most twenty."""
    engine, store = call.services.engine, call.services.objects
    keys = {each.key.removeprefix(names.COMPARISON_PREFIX) for each in await store.list(names.COMPARISON_PREFIX)}
    done = {key.removesuffix(_MANIFEST_SUFFIX) for key in keys if key.endswith(_MANIFEST_SUFFIX)}
    begun = {each async for each in _list_comparison_ids_in_engine(engine)}
    # Earlier code named its manifests in other ways.
    named = (each for each in done | begun if re.match(_ID_PATTERN, each))
    newest = sorted(named, reverse=True)[:LISTED_MAX]
    return ComparisonsResponse(
        items=await asyncio.gather(*(_build_comparison_summary_with_state(call, each) for each in newest))
    )


@routes.post("/v1/addresses/comparisons", access=RouteAccess.ADMIN, status=HTTPStatus.ACCEPTED)
async def start_comparison(call: Call) -> ComparisonResponse:
    """Compare all addresses of the four modules; this reads each address once."""
    comparison_id = datetime.now(UTC).strftime(_ID_FORMAT)
    await handle.start_comparison(call.services.engine, ComparisonIdInput(comparison_id=comparison_id))
    return _build_comparison_response(comparison_id, WorkflowState.RUNNING)


@routes.get("/v1/addresses/comparisons/{comparison_id}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_comparison(call: Call, path: ComparisonPath) -> ComparisonResponse:
    """Show the progress of a comparison, and its result with a link to the workbook."""
    found = await _load_comparison_counts_with_link(call, path.comparison_id)
    if found is not None:
        return _build_comparison_response(path.comparison_id, WorkflowState.SUCCEEDED, found=found)
    engine, workflow_id = call.services.engine, names.build_comparison_workflow_id(path.comparison_id)
    match await handle.read_workflow_state(engine, workflow_id):
        case WorkflowState.FAILED:
            fault = await handle.read_fault_of_failed_comparison(engine, workflow_id)
            return _build_comparison_response(path.comparison_id, WorkflowState.FAILED, fault=fault)
        case WorkflowState.RUNNING | WorkflowState.SUCCEEDED as state:
            return _build_comparison_response(path.comparison_id, state)
        case None:
            raise Missing(
                "not_found",
                f"There is no comparison {path.comparison_id}.",
                "POST /v1/addresses/comparisons starts one.",
            )


def _build_comparison_response(
    comparison_id: str,
    state: WorkflowState,
    *,
    fault: FaultRecord | None = None,
    found: ComparisonCounts | None = None,
) -> ComparisonResponse:
    return ComparisonResponse(comparison_id=comparison_id, state=state, fault=fault, found=found)


async def _list_comparison_ids_in_engine(engine: Client) -> AsyncIterator[str]:
    """Yield the ids of comparisons that the engine remembers, also of running and failed ones."""
    query = f"WorkflowType = '{names.COMPARISON_WORKFLOW}'"
    async for each in engine.list_workflows(query, limit=LISTED_MAX):
        yield each.id.removeprefix(names.build_comparison_workflow_id(""))


async def _build_comparison_summary_with_state(call: Call, comparison_id: str) -> ComparisonSummary:
    found = await _load_result_of_finished_comparison(call, comparison_id)
    state = (
        WorkflowState.SUCCEEDED
        if found
        else await handle.read_workflow_state(call.services.engine, names.build_comparison_workflow_id(comparison_id))
    )
    return ComparisonSummary(
        comparison_id=comparison_id,
        requested_at=datetime.strptime(comparison_id, _ID_FORMAT).replace(tzinfo=UTC),
        # A comparison that the engine no longer has and that wrote no manifest has failed.
        state=state or WorkflowState.FAILED,
        compared=found.compared if found else None,
        different=found.different if found else None,
    )


async def _load_result_of_finished_comparison(call: Call, comparison_id: str) -> ModuleComparisonCounts | None:
    try:
        written = await call.services.objects.get(names.build_comparison_manifest_key(comparison_id))
    except ObjectMissing:
        return None
    return ModuleComparisonCounts.model_validate_json(written)


async def _load_comparison_counts_with_link(call: Call, comparison_id: str) -> ComparisonCounts | None:
    found = await _load_result_of_finished_comparison(call, comparison_id)
    if found is None:
        return None
    url = await call.services.objects.presign_download(
        found.key,
        expires_seconds=LINK_SECONDS,
        file_name=f"addresses-{comparison_id}.xlsx",
        content_type=WORKBOOK_CONTENT_TYPE,
    )
    return ComparisonCounts(**found.model_dump(exclude={"comparison_id", "key"}), url=url)
