"""The audit log: every action of a caller, written before it is done, and the route that lists them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, model_validator

from api.http import pagination, problems, validation
from api.http.models import Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, Route, RouteAccess, Routes
from api.http.validation import QueryTimestamp
from api.projects import require_key_of_all_systems
from domain.faults import Forbidden, Invalid
from domain.secrets import KeyRight
from infra import log
from stores import audit as store
from stores.tables.shared import AuditEntry

PATH_MAX_CHARACTERS = 1_000
GIVEN_ITEMS_MAX = 100
GIVEN_TEXT_MAX_CHARACTERS = 200
_GIVEN_TEXTS = re.compile(
    r"(\w+_)?(id|ids|type|types)|slices?|platform|right|systems|topics?|modules?|state|code|start|end|expires_at"
)
"""Names of fields whose texts are written down: other texts may be secrets, addresses or contents."""

routes = Routes("audit", "The audit log: which caller did what, when, and how it was answered.")


class AuditQuery(PageQuery):
    """The actions to list."""

    actor: str | None = Field(
        default=None, max_length=200, description="`key <id>`, `admin`, or `admin <name>`", examples=["admin alice"]
    )
    action: str | None = Field(default=None, max_length=200, description="method and path template of the route")
    happened_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    happened_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.happened_after, self.happened_before, ("happened_after", "happened_before")
        )
        return self


class ActionResponse(Response):
    """An action."""

    happened_at: AwareDatetime
    project_id: str | None = Field(description="the project that it was done in; null for none")
    actor: str = Field(description="the key that did it: `key <id>`, `admin`, or `admin <name>`")
    action: str = Field(description="method and path template of the route")
    path: str = Field(description="what was addressed, without the query")
    who: str | None = Field(description="the operator, where the request names one")
    reason: str | None = Field(description="the reason, where the request gives one")
    given: dict[str, JsonValue] | None = Field(
        description="ids, types, numbers and switches of the body; other texts may be secrets and are left out"
    )
    status: int | None = Field(description="the status of the answer; null where the process ended before it was known")
    code: str | None = Field(description="why it was refused; null where it was done. Routes of tasks refuse with 200")
    request_id: str


@dataclass(slots=True)
class AuditedActionOutcome:
    """An entry whose action is under way."""

    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    code: str | None = None


@routes.get(
    "/v1/audit",
    access=RouteAccess.PROJECTS,
    right=KeyRight.OPERATE,
    problems={"cursor_invalid": Invalid, "key_lacks_right": Forbidden},
)
async def list_actions(call: Call, query: AuditQuery) -> PageResponse[ActionResponse]:
    """List actions, newest first.

    An action is a request that changes something that is there: a key, a setting, a run, what failed. Requests that
    only submit work (downloads, transfers, tasks) are not among them: the work itself says who submitted it. Nor are
    dry runs, which change nothing. A key that is limited to some systems is refused.
    """
    require_key_of_all_systems(call.caller, "The audit log")
    after = query.after
    place = None if after is None else (after[0], pagination.parse_numeric_id_or_zero(after[1]))
    filters = store.AuditFilter(
        call.project_filter, query.actor, query.action, query.happened_after, query.happened_before
    )
    async with call.services.database.session() as session:
        rows = await store.list_audit_entry_page_plus_one(session, filters, place, query.limit)
    return pagination.build_page(rows, query.limit, _build_action_response, lambda row: (row.happened_at, str(row.id)))


def is_audited(route: Route) -> bool:
    """Return whether calls of a route are written to the audit log."""
    return route.is_audited and not route.is_read_only and route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH}


def is_dry_run(body: BaseModel | None) -> bool:
    """Return whether a body asks only what would be done, which is no action."""
    return getattr(body, "dry_run", False) is True


@asynccontextmanager
async def record_action_before_and_status_after(
    call: Call, body: BaseModel | None
) -> AsyncIterator[AuditedActionOutcome]:
    """Write an action before it is done, and the status of its answer afterwards.

    An action that cannot be written is not done. A status that cannot be written stays null.
    """
    database = call.services.database
    entry_id = await store.add_audit_entry(
        database,
        store.NewAuditEntry(
            project_id=call.caller.project_id
            or call.request.match_info.get("project_id")
            or getattr(body, "project_id", None),
            actor=call.caller.actor,
            name=call.route.name,
            path=call.request.path.replace("\0", "%00")[:PATH_MAX_CHARACTERS],  # no text in PostgreSQL holds a NUL
            who=getattr(body, "who", None),
            reason=getattr(body, "reason", None),
            request_id=call.request_state.id,
            given=None if body is None else _select_recordable_values(body.model_dump(mode="json", exclude_unset=True)),
            platform=call.request.match_info.get("platform"),
        ),
    )
    entry = AuditedActionOutcome()
    try:
        yield entry
    except asyncio.CancelledError:
        # The time of the request is over: what it was to do may have happened, and its answer is an outage.
        entry.status, entry.code = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"
        raise
    except Exception as error:
        problem = problems.convert_error_to_problem(error, call.request_state.id)
        entry.status, entry.code = call.route.render(problem).status, problem.code
        raise
    finally:
        try:
            await store.write_outcome_of_audited_action(database, entry_id, entry.status, entry.code)
        except Exception as error:  # noqa: BLE001 (the action is done, and its answer must not say otherwise)
            log.get(__name__).warning("action_status_unwritten", entry_id=entry_id, error=repr(error))
        log.get(__name__).info("action_recorded", action=call.route.name, actor=call.caller.actor, status=entry.status)


def _select_recordable_values(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what may be written down of a body, at any depth: ids, types, numbers, switches, and nulls."""
    given: dict[str, JsonValue] = {}
    for name, value in values.items():
        may_be_text = _GIVEN_TEXTS.fullmatch(name) is not None
        items = value if isinstance(value, list) else [value]
        kept = [
            _select_recordable_values(item)
            if isinstance(item, dict)
            else _shorten_and_replace_unstorable_characters(item)
            if isinstance(item, str)
            else item
            for item in items[:GIVEN_ITEMS_MAX]
            if may_be_text or not isinstance(item, str | list)
        ]
        if kept:
            given[_shorten_and_replace_unstorable_characters(name)] = (
                [*kept, *_build_note_of_omitted_items(items)] if isinstance(value, list) else kept[0]
            )
    return given


def _shorten_and_replace_unstorable_characters(text: str) -> str:
    """Shorten a text, and replace what PostgreSQL's JSON does not hold: NULs and lone surrogates."""
    return text[:GIVEN_TEXT_MAX_CHARACTERS].replace("\0", "%00").encode("utf-8", "replace").decode()


def _build_note_of_omitted_items(items: Sequence[JsonValue]) -> list[JsonValue]:
    left = len(items) - GIVEN_ITEMS_MAX
    return [f"and {left} more"] if left > 0 else []


def _build_action_response(row: AuditEntry) -> ActionResponse:
    return ActionResponse.model_validate(row, from_attributes=True)
