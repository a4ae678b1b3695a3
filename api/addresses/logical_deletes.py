"""Addresses that modules keep because of orders in flight: list, check and purge them."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, computed_field
from temporalio.client import ScheduleOverlapPolicy

from api.addresses.context import INT64_MAX, load_effective_settings, routes
from api.http import pagination
from api.http.models import OperatorRequest, Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from domain.addresses import names
from domain.addresses.activity_models import PURGE_MAX, AddressIdsByPurgeOutcome, PurgeAddressesInput
from domain.addresses.operations import Module
from domain.addresses.results import IN_FLIGHT_MODULES
from domain.faults import Invalid, Missing
from stores.addresses import logical_deletes
from stores.addresses.logical_deletes import LogicalDeleteFilter
from stores.tables.addresses import LogicalDelete
from workflows.addresses import handle as addresses_handle
from workflows.addresses.handle import WorkflowState

_PURGE_ID: Final = r"^[0-9a-f]{24}$"

AddressId = Annotated[int, Field(ge=1, le=INT64_MAX)]


class LogicalDeletesQuery(PageQuery):
    """Which addresses to list."""

    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX)
    address_id: int | None = Field(default=None, ge=1, le=INT64_MAX)
    removable: bool | None = Field(
        default=None, description="true: only those that no module needs any more; false: the others"
    )
    purged: bool = Field(default=False, description="removed addresses instead of those that remain")


class LogicalDeleteSummary(Response):
    """A logically deleted address."""

    address_id: int
    uprn: int
    message_id: int = Field(description="the message that deleted it")
    needed_by: list[Module] = Field(description="modules with orders in flight, by their last answer")
    created_at: AwareDatetime
    checked_at: AwareDatetime | None = Field(description="when all modules answered last")
    removable_at: AwareDatetime | None = Field(description="since when no module needs it, by their last answers")
    purged_at: AwareDatetime | None


class StartCheckResponse(Response):
    """A check that was started."""

    schedule: str = Field(
        description="its schedule in the Temporal Web UI; the result is `checked_at` of the addresses"
    )


class PurgeAddressesRequest(OperatorRequest):
    """Which addresses to remove."""

    address_ids: list[AddressId] = Field(min_length=1, max_length=PURGE_MAX)


class PurgePath(Request):
    """The id of a purge."""

    purge_id: str = Field(pattern=_PURGE_ID)


class PurgeResponse(Response):
    """The progress of a purge, and the outcome of each address; one in no list was no longer listed."""

    purge_id: str
    state: WorkflowState
    purged: list[int] = Field(description="gone from all four modules")
    in_use: list[int] = Field(description="a module has orders in flight")
    superseded: list[int] = Field(description="created again or deleted again meanwhile")
    failed: list[int] = Field(description="a module gave no answer, or refused; they may be purged again")

    @computed_field(description="the workflow's id in Temporal")  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def workflow_id(self) -> str:
        """The workflow of the purge."""
        return names.build_purge_workflow_id(self.purge_id)


@routes.get("/v1/addresses/logical-deletes", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_logical_deletes(call: Call, query: LogicalDeletesQuery) -> PageResponse[LogicalDeleteSummary]:
    """List logically deleted addresses, newest first."""
    filter_ = LogicalDeleteFilter(query.uprn, query.address_id, query.removable, query.purged)
    after = query.after and (query.after[0], pagination.parse_numeric_id_or_zero(query.after[1]))
    rows = await logical_deletes.list_logical_delete_page_plus_one(call.services.database, filter_, after, query.limit)
    return pagination.build_page(
        rows, query.limit, _build_logical_delete_summary, lambda row: (row.create_date, str(row.address_id))
    )


@routes.post("/v1/addresses/logical-deletes:check", access=RouteAccess.ADMIN, status=HTTPStatus.ACCEPTED)
async def start_logical_delete_check(call: Call) -> StartCheckResponse:
    """Ask all modules which addresses they still need, unless a check is running."""
    hours = (await load_effective_settings(call)).check_hours
    handle = await addresses_handle.find_or_create_check_schedule(call.services.engine, hours)
    await handle.trigger(overlap=ScheduleOverlapPolicy.SKIP)
    return StartCheckResponse(schedule=handle.id)


@routes.post("/v1/addresses/logical-deletes:purge", access=RouteAccess.ADMIN, status=HTTPStatus.ACCEPTED)
async def start_purge(call: Call, body: PurgeAddressesRequest) -> PurgeResponse:
    """Remove addresses from all modules, unless a module has orders in flight at that moment."""
    purge_id = secrets.token_hex(12)
    params = PurgeAddressesInput(address_ids=sorted(set(body.address_ids)), who=body.who, reason=body.reason)
    await addresses_handle.start_purge(call.services.engine, purge_id, params)
    return _build_purge_response(purge_id, WorkflowState.RUNNING, AddressIdsByPurgeOutcome())


@routes.get(
    "/v1/addresses/logical-deletes/purges/{purge_id}", access=RouteAccess.ADMIN, problems={"not_found": Missing}
)
async def read_purge(call: Call, path: PurgePath) -> PurgeResponse:
    """Show the outcome of a purge."""
    engine, workflow_id = call.services.engine, names.build_purge_workflow_id(path.purge_id)
    match await addresses_handle.read_workflow_state(engine, workflow_id):
        case None:
            raise Missing(
                "not_found",
                f"There is no purge {path.purge_id}, or the engine no longer has it.",
                "GET /v1/addresses/logical-deletes?purged=true lists what was removed.",
            )
        case WorkflowState.SUCCEEDED:
            report: AddressIdsByPurgeOutcome = await engine.get_workflow_handle(
                workflow_id, result_type=AddressIdsByPurgeOutcome
            ).result()
            return _build_purge_response(path.purge_id, WorkflowState.SUCCEEDED, report)
        case state:
            return _build_purge_response(path.purge_id, state, AddressIdsByPurgeOutcome())


def _build_purge_response(purge_id: str, state: WorkflowState, report: AddressIdsByPurgeOutcome) -> PurgeResponse:
    return PurgeResponse(purge_id=purge_id, state=state, **report.model_dump())


def _build_logical_delete_summary(row: LogicalDelete) -> LogicalDeleteSummary:
    return LogicalDeleteSummary(
        address_id=row.address_id,
        uprn=row.uprn,
        message_id=row.log_id,
        needed_by=[module for module in IN_FLIGHT_MODULES if getattr(row, f"{module}_flag") == "Y"],
        created_at=row.create_date,
        checked_at=row.checked_at,
        removable_at=row.removable_at,
        purged_at=row.purged_at,
    )
