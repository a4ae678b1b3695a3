"""Routes: the one table that the server, the OpenAPI document and the tests are all made from.

A room declares its routes beside their handlers; annotations say everything once:

    routes = Routes("widgets", "Things that turn.")

    @routes.post("/v1/widgets", access=Access.PROJECT, status=201, problems={"widget_exists": Conflict})
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

from api.deadlines import Deadline
from api.models import Foreign
from api.problems import Renderer, respond
from domain.faults import Fault
from services.services import Services

JSON = "application/json"


class Access(StrEnum):
    """Who may call a route. A valid key that does not open a route is told that there is nothing."""

    PUBLIC = "public"  # anybody
    PROJECT = "project"  # a project's own key, or the admin key within the project that it names
    PROJECTS = "projects"  # the same, and the admin key over all projects where it names none
    OWNER = "owner"  # a key of the project named in the path, or the admin key
    ADMIN = "admin"  # the admin key
    PUSH = "push"  # Pub/Sub, by the token that it signs or the secret that it was told


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as the credential says."""

    project_id: str | None = None
    key_id: str | None = None
    is_admin: bool = False
    until: datetime | None = None
    """When the session ends by which they call; None for who shows a key."""


@dataclass(slots=True)
class Visit:
    """A request, as the door knows it."""

    id: str
    deadline: Deadline
    route: Route | None = None
    """Once it is found."""
    body: bytes = b""
    """As it was sent, where the route takes one."""
    headers: dict[str, str] = field(default_factory=dict)
    """What a handler wants told in the headers, whether its answer is a result or a problem."""
    begun: web.StreamResponse | None = None
    """The answer that is on its way."""


VISIT = web.RequestKey("visit", Visit)


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who calls, and the clients that answer it."""

    request: web.Request
    caller: Caller
    services: Services
    route: Route

    @property
    def project_id(self) -> str:
        """The project that the call works on, on routes that work on one."""
        if self.caller.project_id is None:
            raise LookupError("this route's access lets callers in that have no project")
        return self.caller.project_id

    @property
    def scope(self) -> str | None:
        """The project that the call is about; None for all of them, which only the admin key sees."""
        if self.caller.project_id is None and not self.caller.is_admin:
            raise LookupError("this route's access lets callers in that have no project")
        return self.caller.project_id

    @property
    def visit(self) -> Visit:
        """What the door knows of the request."""
        return self.request[VISIT]

    def lift_time_limit(self) -> None:
        """From here on the answer takes as long as the caller listens: it waits or streams for them."""
        self.visit.deadline.lift()


Handler = Callable[..., Awaitable[BaseModel | web.StreamResponse | None]]
SomeHandler = TypeVar("SomeHandler", bound=Handler)
Attach = Callable[[web.Application, Services], None]


class Options(TypedDict, total=False):
    """What a route says besides method, path and its handler's annotations."""

    status: int
    slashes: str  # the one variable of the path that may hold slashes, raw or percent-encoded
    media_type: str  # of answers that are no model
    body_max_bytes: int  # where bodies are larger than the setting allows everywhere else
    body_optional: bool  # whether no body is the same as {}
    also: Mapping[HTTPStatus, str]  # what else it may answer when all is well, and in which media type
    problems: Mapping[str, type[Fault]]  # the stable codes that this handler raises


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table."""

    method: str
    path: str
    access: Access
    handler: Handler
    tag: str
    summary: str
    description: str
    body: type[BaseModel] | None
    query: type[BaseModel] | None
    headers: type[BaseModel] | None
    variables: type[BaseModel] | None
    answer: type[BaseModel] | None
    render: Renderer
    status: int = HTTPStatus.OK
    slashes: str = ""
    media_type: str = JSON
    body_max_bytes: int = 0
    body_optional: bool = False
    headerless: bool = False
    also: Mapping[HTTPStatus, str] = field(default_factory=dict)
    problems: Mapping[str, type[Fault]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Method and path template, as logs and metrics say it."""
        return f"{self.method} {self.path}"

    @property
    def is_within_project(self) -> bool:
        """Whether it works on the caller's project, or for the admin key on one that it names."""
        return self.access in {Access.PROJECT, Access.PROJECTS}

    @property
    def project_in_query(self) -> bool:
        """Whether the admin's project may stand in the query: a browser opens this by itself, without headers."""
        opened = self.media_type != JSON or self.status in {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.FOUND}
        return self.is_within_project and self.method in {"GET", "HEAD"} and opened

    @property
    def operation_id(self) -> str:
        """A name for generated clients, e.g. `projects_create`."""
        return f"{self.tag}_{self.handler.__name__}"


class Routes:
    """The routes of one room.

    Args:
        tag: The room's name.
        description: One sentence about it, for the reference.
        render: How this room shows problems, if not as problem+json.
        headerless: Whether clients that can set no header are served: they show their key in the address, which is HTTP
            Basic, and send JSON without saying so.
        attach: Hangs on the application what lives as long as it serves.
    """

    def __init__(
        self,
        tag: str,
        description: str,
        *,
        render: Renderer = respond,
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

    def get(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that reads."""
        return self._declare("GET", path, access, options)

    def head(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that answers the head alone of what another one sends."""
        return self._declare("HEAD", path, access, options)

    def post(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that makes or starts something."""
        return self._declare("POST", path, access, options)

    def put(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that sets something whole; sending the same again changes nothing."""
        return self._declare("PUT", path, access, options)

    def patch(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that changes what is sent and leaves the rest."""
        return self._declare("PATCH", path, access, options)

    def delete(self, path: str, *, access: Access, **options: Unpack[Options]) -> Callable[[SomeHandler], SomeHandler]:
        """Declare a route that ends something."""
        return self._declare("DELETE", path, access, options)

    def _declare(
        self, method: str, path: str, access: Access, options: Options
    ) -> Callable[[SomeHandler], SomeHandler]:
        def declare(handler: SomeHandler) -> SomeHandler:
            hints = get_type_hints(handler)
            summary, _, description = (inspect.getdoc(handler) or "").partition("\n")
            answer = _main_answer(hints["return"])
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
                variables=hints.get("path"),
                answer=answer if _is_model(answer) else None,
                render=self._render,
                headerless=self._headerless,
                **_with_status(options, answer),
            )
            _check(route, hints)
            self._routes.append(route)
            return handler

        return declare


def _with_status(options: Options, answer: Any) -> Options:
    return options if answer is not type(None) else {"status": HTTPStatus.NO_CONTENT, **options}


def _main_answer(hint: Any) -> Any:
    """Of several answers the one that is a model; what else there is the options say under `also`."""
    return next(filter(_is_model, get_args(hint)), hint)


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _check(route: Route, hints: Mapping[str, Any]) -> None:
    """Refuse a row that could not work, when the room is imported and not when it is called."""
    inputs = {name: hint for name, hint in hints.items() if name not in {"call", "_call", "return"}}
    variables = set(re.findall(r"{(\w+)}", route.path))
    declared = set(route.variables.model_fields) if route.variables else set()
    wrong = {
        "a handler takes only call, body, query, headers and path": inputs.keys()
        - {"body", "query", "headers", "path"},
        "every input must be a model that forbids unknown fields": {
            name
            for name, hint in inputs.items()
            if not (_is_model(hint) and (hint.model_config.get("extra") == "forbid" or issubclass(hint, Foreign)))
        },
        "the path and its model must have the same variables": variables ^ declared,
        "a route that its owner opens needs the project in its path": (
            {"project_id"} - declared if route.access is Access.OWNER else set()
        ),
        "a handler's docstring is its summary": set() if route.summary else {"docstring"},
    }
    for rule, offenders in wrong.items():
        if offenders:
            raise TypeError(f"{route.name}: {rule}; see {', '.join(sorted(offenders))}")
