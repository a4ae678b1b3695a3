"""Routes: the table from which the server, the OpenAPI document and the tests are built.

A system declares its routes beside their handlers; annotations say everything once:

    routes = Routes("widgets", "Things that turn.")

    @routes.post("/v1/widgets", access=RouteAccess.PROJECT, status=201, problems={"widget_exists": Conflict})
    async def create(call: Call, body: NewWidget) -> Widget:
        \"\"\"Make a widget.

        Longer text for the reference.
        \"\"\"
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, TypedDict, TypeVar, Unpack, get_args, get_type_hints

from aiohttp import web
from pydantic import BaseModel

from api.http.deadlines import CancellingDeadline
from api.http.models import Deprecated, LenientRequest
from api.http.problems import Renderer, render_problem
from domain.faults import Fault
from domain.quotas import QuotaLimits
from domain.secrets import KeyRight
from services.services import Services
from systems import SYSTEMS

JSON = "application/json"


class RouteAccess(StrEnum):
    """Who may call a route. A key of another project gets 404; where the admin key is needed, any other gets 403."""

    PUBLIC = "public"  # anybody
    PROJECT = "project"  # a project's own key, or the admin key within the project that it names
    PROJECTS = "projects"  # the same, or the admin key over all projects if it names none
    OWNER = "owner"  # a key of the project named in the path, or the admin key
    ADMIN = "admin"  # the admin key
    PUSH = "push"  # Pub/Sub, by its signed token or the configured secret


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, as its credential says."""

    project_id: str | None = None
    key_id: str | None = None
    is_admin: bool = False
    admin_name: str = ""
    """The name of the admin key, where there are several."""

    right: KeyRight = KeyRight.OPERATE
    systems: frozenset[str] | None = None
    """The systems that the key may use; None for all."""

    expires_at: datetime | None = None
    """When the key expires; None for never."""

    until: datetime | None = None
    """When the console session ends; None for a caller with a key."""

    quotas: QuotaLimits | None = None
    """Those of the project; None for a caller without one."""

    @property
    def actor(self) -> str:
        """The caller in the audit log."""
        return f"admin {self.admin_name}".rstrip() if self.is_admin else f"key {self.key_id}"


@dataclass(slots=True)
class RequestState:
    """What the framework keeps about a request."""

    id: str
    deadline: CancellingDeadline
    route: Route | None = None
    """None until the router has found it."""
    body: bytes = b""
    """The raw body, if the route takes one."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that the handler adds to its response, also to a problem."""
    response: web.StreamResponse | None = None
    """Set once the response is being sent."""
    code: str = ""
    """The problem that the request ended in."""


REQUEST_STATE = web.RequestKey("request_state", RequestState)


@dataclass(slots=True)  # not frozen, which would treble what it costs to make one for each request
class Call:
    """One call of a route: the request, its caller, and the services that the handler uses."""

    request: web.Request
    caller: Caller
    services: Services
    route: Route

    @property
    def project_id(self) -> str:
        """The project of the call; only for routes of one project."""
        if self.caller.project_id is None:
            raise LookupError("this route's access lets callers in that have no project")
        return self.caller.project_id

    @property
    def quotas(self) -> QuotaLimits:
        """The quotas of the project of the call."""
        return self.caller.quotas or self.services.settings.quotas

    @property
    def project_filter(self) -> str | None:
        """The project of the call; None for all projects, which only the admin key sees."""
        if self.caller.project_id is None and not self.caller.is_admin:
            raise LookupError("this route's access lets callers in that have no project")
        return self.caller.project_id

    @property
    def public_base(self) -> str:
        """Scheme and host of links to this API: as configured, or else those of the request."""
        # A header's bytes may be no text at all, which JSON cannot hold.
        host = self.request.host.encode("ascii", "ignore").decode()
        return self.services.settings.api.public_base.rstrip("/") or f"{self.request.scheme}://{host}"

    @property
    def request_state(self) -> RequestState:
        """What the framework keeps about the request."""
        return self.request[REQUEST_STATE]

    def remove_time_limit(self) -> None:
        """Remove the time limit of the request, for a response that waits or streams."""
        self.request_state.deadline.remove_limit()


Handler = Callable[..., Awaitable[BaseModel | web.StreamResponse | None]]
SomeHandler = TypeVar("SomeHandler", bound=Handler)
Attach = Callable[[web.Application, Services], None]


class RouteOptions(TypedDict, total=False):
    """Options of a route besides its method, its path and its handler's annotations."""

    status: int
    slashes: str  # the one variable of the path that may hold slashes, raw or percent-encoded
    media_type: str  # of responses that are not a model
    body_max_bytes: int  # for bodies larger than the setting allows for other routes
    body_optional: bool  # whether no body is the same as {}
    takes_ticket: bool  # whether a ticket in the query opens it, too
    right: KeyRight  # what a key must be allowed to do, where the method does not say it
    for_web_ui: bool  # whether pages of Temporal's Web UI may call it with the console's session
    is_audited: bool  # False for routes that only submit or do work, which has its own record, or that change nothing
    begins_work: bool  # whether it is refused while its system is paused
    reads_ahead: bool  # whether the handler, which reads little and changes nothing, runs while the key is checked
    deprecated: Deprecated  # whether a later release will not have it
    also: Mapping[HTTPStatus, str]  # further successful statuses, with their media types
    problems: Mapping[str, type[Fault]]  # the problem codes that this handler raises


@dataclass(frozen=True, slots=True)
class Route:
    """A route with everything that is known about it."""

    method: str
    path: str
    access: RouteAccess
    handler: Handler
    tag: str
    summary: str
    description: str
    body: type[BaseModel] | None
    query: type[BaseModel] | None
    headers: type[BaseModel] | None
    path_model: type[BaseModel] | None
    response: type[BaseModel] | None
    render: Renderer
    status: int = HTTPStatus.OK
    slashes: str = ""
    media_type: str = JSON
    body_max_bytes: int = 0
    body_optional: bool = False
    takes_ticket: bool = False
    right: KeyRight | None = None
    is_audited: bool = True
    for_web_ui: bool = False
    begins_work: bool = False
    reads_ahead: bool = False
    headerless: bool = False
    deprecated: Deprecated | None = None
    also: Mapping[HTTPStatus, str] = field(default_factory=dict)
    problems: Mapping[str, type[Fault]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Method and path template, as logs and metrics name the route."""
        return f"{self.method} {self.path}"

    @property
    def is_within_project(self) -> bool:
        """Whether the route works on the caller's project, or on one that the admin key names."""
        return self.access in {RouteAccess.PROJECT, RouteAccess.PROJECTS}

    @property
    def allows_project_in_query(self) -> bool:
        """Whether the query may name the admin key's project: a browser opens such routes without headers."""
        is_opened = self.media_type != JSON or self.status in {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.FOUND}
        return self.is_within_project and self.method in {"GET", "HEAD"} and is_opened

    @property
    def is_read_only(self) -> bool:
        """Whether a call changes nothing."""
        return self.method in {"GET", "HEAD"}

    @property
    def lists_rows(self) -> bool:
        """Whether it reads a page of rows."""
        return self.is_read_only and self.query is not None and "limit" in self.query.model_fields

    @property
    def is_refused_to_revoked_projects(self) -> bool:
        """Whether a call makes or begins work, or takes a part in it, which a revoked project does not."""
        return self.begins_work or not (self.is_audited or self.is_read_only)

    @property
    def needed_right(self) -> KeyRight:
        """What a key must be allowed to do."""
        if self.right is not None:
            return self.right
        if self.is_read_only:
            return KeyRight.READ
        return KeyRight.OPERATE if self.access is RouteAccess.OWNER else KeyRight.WRITE

    @property
    def is_closed_to_some_keys(self) -> bool:
        """Whether some keys of the project that it works on are refused, for their right or their systems."""
        is_for_project_keys = self.is_within_project or self.access is RouteAccess.OWNER
        return is_for_project_keys and (self.tag in SYSTEMS or self.needed_right is not KeyRight.READ)

    @property
    def operation_id(self) -> str:
        """The name in generated clients, e.g. `projects_create`."""
        return f"{self.tag}_{self.handler.__name__}"


class Routes:
    """The routes of one system or subject.

    Args:
        tag: The name of the group.
        description: One sentence for the API reference.
        render: Renders problems, if not as problem+json.
        headerless: Whether clients that set no headers are served: their key comes in the address (HTTP Basic), and
            their JSON without a Content-Type.
        attach: Adds to the application what the handlers share.
    """

    def __init__(
        self,
        tag: str,
        description: str,
        *,
        render: Renderer = render_problem,
        attach: Attach | None = None,
        headerless: bool = False,
    ) -> None:
        self.tag = tag
        self.description = description
        self.attach = attach
        self._render = render
        self._headerless = headerless
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def get(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that reads."""
        return self._build_route_decorator("GET", path, access, options)

    def head(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that answers with the headers of a GET route."""
        return self._build_route_decorator("HEAD", path, access, options)

    def post(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that creates or starts something."""
        return self._build_route_decorator("POST", path, access, options)

    def put(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that replaces something; repeating the request changes nothing."""
        return self._build_route_decorator("PUT", path, access, options)

    def patch(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that changes some fields of something."""
        return self._build_route_decorator("PATCH", path, access, options)

    def delete(
        self, path: str, *, access: RouteAccess, **options: Unpack[RouteOptions]
    ) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that deletes or ends something."""
        return self._build_route_decorator("DELETE", path, access, options)

    def _build_route_decorator(
        self, method: str, path: str, access: RouteAccess, options: RouteOptions
    ) -> Callable[[SomeHandler], SomeHandler]:
        def add_route_of_handler(handler: SomeHandler) -> SomeHandler:
            hints = get_type_hints(handler)
            summary, _, description = (inspect.getdoc(handler) or "").partition("\n")
            response = _find_response_model_or_keep_hint(hints["return"])
            route = Route(
                method=method,
                path=path,
                access=access,
                handler=handler,
                tag=self.tag,
                summary=summary.rstrip("."),
                description=description.strip(),
                body=hints.get("body"),
                query=hints.get("query"),
                headers=hints.get("headers"),
                path_model=hints.get("path"),
                response=response if _is_model(response) else None,
                render=self._render,
                headerless=self._headerless,
                **_default_to_no_content(options, response),
            )
            _require_valid_route(route, hints)
            self._routes.append(route)
            return handler

        return add_route_of_handler


def _default_to_no_content(options: RouteOptions, response: Any) -> RouteOptions:
    return options if response is not type(None) else {"status": HTTPStatus.NO_CONTENT, **options}


def _find_response_model_or_keep_hint(hint: Any) -> Any:
    """Return the member of a union that is a model; the option `also` declares the others."""
    return next(filter(_is_model, get_args(hint)), hint)


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _require_valid_route(route: Route, hints: Mapping[str, Any]) -> None:
    """Raise TypeError for a route that could not work, at import rather than at the first call."""
    inputs = {name: hint for name, hint in hints.items() if name not in {"call", "_call", "return"}}
    variables = set(re.findall(r"{(\w+)}", route.path))
    declared = set(route.path_model.model_fields) if route.path_model else set()
    wrong = {
        "a handler takes only call, body, query, headers and path": inputs.keys()
        - {"body", "query", "headers", "path"},
        "every input must be a model that forbids unknown fields": {
            name
            for name, hint in inputs.items()
            if not (
                _is_model(hint) and (hint.model_config.get("extra") == "forbid" or issubclass(hint, LenientRequest))
            )
        },
        "the path and its model must have the same variables": variables ^ declared,
        "a route with RouteAccess.OWNER needs project_id in its path": (
            {"project_id"} - declared if route.access is RouteAccess.OWNER else set()
        ),
        "a route that reads ahead changes nothing, and has no query": (
            {"reads_ahead"} if route.reads_ahead and (not route.is_read_only or route.query) else set()
        ),
        "a handler's docstring is its summary": set() if route.summary else {"docstring"},
    }
    for rule, offenders in wrong.items():
        if offenders:
            raise TypeError(f"{route.name}: {rule}; see {', '.join(sorted(offenders))}")
