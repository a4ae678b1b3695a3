"""Read messages, counts, and the state of the cycle."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Final, Self

from pydantic import Field, model_validator
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError

from api.addresses import responses
from api.addresses.context import INT64_MAX, load_effective_settings, routes
from api.addresses.responses import (
    AddressPauseResponse,
    CycleProgress,
    CycleResponse,
    MessageResponse,
    MessageSummary,
    UnfinishedCountsResponse,
    build_unfinished_counts,
)
from api.http import pagination, validation
from api.http.models import Request
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from api.http.validation import QueryTimestamp
from domain.addresses import names
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from domain.faults import Invalid, Missing
from infra import starts
from services import addresses
from stores import pauses
from stores.addresses import actions, cycle, search
from stores.addresses.search import MessageSearch, MessageSearchConditions
from stores.pauses import PauseRecord
from workflows.addresses import handle as addresses_handle

_KINDS_OF_WAITING: Final = (None, WaitKind.PAUSED, WaitKind.BEHIND)


class MessagePath(Request):
    """The id of a message in the log."""

    message_id: int = Field(ge=1, le=INT64_MAX)


class MessagesQuery(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: MessageState | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are unfinished for this reason")
    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")
    history: bool = Field(default=False, description="archived messages instead of the log's")

    @model_validator(mode="after")
    def _reject_contradictions_and_history_scans(self) -> Self:
        """Refuse contradictions, and scans of the history: it may be a thousand times as long as the log."""
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        if self.state is MessageState.WAITING and (self.module or self.kind not in _KINDS_OF_WAITING):
            raise ValueError(
                "a message in state “waiting” has not failed; leave module out, and kind unless it is “paused” or "
                "“behind”, or choose another state."
            )
        if not self.history:
            return self
        if self.state not in (None, MessageState.DONE):
            raise ValueError(
                f"state “{self.state}” is never in the history, which has only done messages; leave one of them out."
            )
        is_scan = self.topic or self.module or self.kind
        if is_scan and self.uprn is None and self.created_after is None:
            raise ValueError("history with topic, module or kind needs a uprn or created_after; add one.")
        return self

    @property
    def message_filter(self) -> MessageSearchConditions:
        names = ("topic", "uprn", "module", "kind", "created_after", "created_before")
        return MessageSearchConditions(**{name: getattr(self, name) for name in names})


QUERY_TIMEOUT: Final = timedelta(seconds=2)


@routes.get("/v1/addresses/messages", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_messages(call: Call, query: MessagesQuery) -> PageResponse[MessageSummary]:
    """List change messages, newest first.

    Done messages move to the history at the end of their cycle; `history=true` lists those.
    """
    settings = await load_effective_settings(call)
    retries, after = settings.failed_cycles_max, query.after
    search_ = MessageSearch(
        filter=query.message_filter,
        limit=query.limit + 1,
        retries=retries,
        state=query.state,
        in_history=query.history,
        after=(after[0], pagination.parse_numeric_id_or_zero(after[1])) if after else None,
    )
    rows = await search.search_messages(call.services.database, search_)
    paused = await addresses.find_pauses_of_paused_modules(call.services.database, settings)
    return pagination.build_page(
        rows,
        query.limit,
        lambda row: responses.build_message_summary(row, retries, paused),
        lambda row: (row.created_at, str(row.id)),
    )


@routes.get("/v1/addresses/messages/{message_id}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_message(call: Call, path: MessagePath) -> MessageResponse:
    """Show a message: the published text, the four acknowledgements, why it waits, and the actions of operators."""
    return await load_message(call, path.message_id)


async def load_message(call: Call, message_id: int) -> MessageResponse:
    """Return a message as it is now.

    Raises:
        Missing: There is none.
    """
    row = await search.find_message(call.services.database, message_id)
    if row is None:
        raise Missing(
            "not_found",
            f"There is no message {message_id} in the log or in its history.",
            "GET /v1/addresses/messages lists the existing ones.",
        )
    supersedes = await search.list_superseded_ids(call.services.database, row)
    done = await search.list_operator_actions(call.services.database, message_id)
    settings = await load_effective_settings(call)
    paused = await addresses.find_pauses_of_paused_modules(call.services.database, settings)
    return responses.build_message_response(row, supersedes, done, settings.failed_cycles_max, paused)


@routes.get("/v1/addresses/figures", access=RouteAccess.ADMIN)
async def read_unfinished_counts(call: Call) -> UnfinishedCountsResponse:
    """Count unfinished messages by topic and state, with the age of the oldest.

    `/metrics` has the same numbers as `haulage_addresses_open` and `haulage_addresses_oldest_seconds`.
    """
    return build_unfinished_counts(
        await cycle.count_unfinished_messages(
            call.services.database, (await load_effective_settings(call)).failed_cycles_max
        )
    )


@routes.get("/v1/addresses/cycle", access=RouteAccess.ADMIN)
async def read_cycle(call: Call) -> CycleResponse:
    """Show whether cycles run."""
    return await build_cycle_response(call, await find_or_create_cycle_schedule(call))


async def find_or_create_cycle_schedule(call: Call) -> ScheduleHandle:
    """Return the schedule, created again if the engine has lost it."""
    return await addresses_handle.find_or_create_cycle_schedule(
        call.services.engine, (await load_effective_settings(call)).pause_seconds
    )


async def build_cycle_response(call: Call, handle: ScheduleHandle) -> CycleResponse:
    description = await handle.describe()
    state, running = description.schedule.state, description.info.running_actions
    started = [each for each in running if isinstance(each, ScheduleActionExecutionStartWorkflow)]
    return CycleResponse(
        is_paused=state.paused,
        note=state.note or "",
        workflow_ids=[each.workflow_id for each in started],
        next_runs=starts.list_next_run_times(description),
        progress=await _read_cycle_progress_if_running(call.services.engine, started[0].workflow_id)
        if started
        else None,
        pauses=await _list_pauses_of_system_cycle_and_modules(call, state.note or "" if state.paused else None),
    )


async def _list_pauses_of_system_cycle_and_modules(call: Call, cycle_note: str | None) -> list[AddressPauseResponse]:
    """List what is paused: the system, the cycle if it has a note, and modules."""
    database = call.services.database
    found: list[AddressPauseResponse] = []
    if system := (await pauses.list_pauses_by_subject(database)).get(names.SYSTEM):
        found.append(AddressPauseResponse(of="system", module=None, **asdict(system)))
    if cycle_note is not None:
        # The note of another pause than the last one of the audit is that of Temporal's Web UI.
        last = await actions.find_last_cycle_pause_in_audit(database)
        is_known = last is not None and cycle_note == f"{last.who}: {last.reason}"
        pause = last if last and is_known else PauseRecord(None, "Temporal's Web UI", cycle_note)
        found.append(AddressPauseResponse(of="cycle", module=None, **asdict(pause)))
    modules = await addresses.load_module_pauses(database, call.services.settings.addresses)
    return [*found, *(responses.build_module_pause(module, pause) for module, pause in modules.items())]


async def _read_cycle_progress_if_running(engine: Client, workflow_id: str) -> CycleProgress | None:
    """Return the progress of a run; None if it has ended meanwhile, or no worker answers in time."""
    handle = engine.get_workflow_handle(workflow_id)
    try:
        description = await handle.describe()
        status = await addresses_handle.query_cycle_status(engine, workflow_id, QUERY_TIMEOUT)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return CycleProgress(
        phase=status.phase,
        cycle_id=status.cycle_id,
        started_at=description.start_time,
        **status.totals.model_dump(),
    )
