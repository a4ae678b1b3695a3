"""The API: all routes in one aiohttp application, and the process that serves it."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, time
from email.utils import format_datetime
from functools import lru_cache
from typing import Any, TypeAlias, cast

from aiohttp import web
from pydantic import BaseModel

from api import audit, codec, console, daily_quotas, docs, health, overview, pauses, projects, quotas, session, webhooks
from api.http import auth, deadlines, middleware, parsing, rates, server
from api.http.models import EmptyQuery, find_deprecated_fields
from api.http.routes import REQUEST_STATE, Call, Caller, RequestState, Route, RouteAccess, Routes
from domain.faults import Invalid
from domain.secrets import ADMIN_KEY_MIN_CHARACTERS, PEPPER_MIN_CHARACTERS
from infra import log, tracing
from infra.settings import ApiSettings, Settings
from services import services
from services.services import Services
from systems import System, import_modules, protocol

SystemApi: TypeAlias = protocol.SystemApi[Routes]
RequestHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
HandlerAnswer: TypeAlias = BaseModel | web.StreamResponse | None

GC_THRESHOLDS = (50_000, 20, 50)
ANYBODY = Caller()
"""The caller of a public route."""


def import_api_packages() -> Mapping[System, SystemApi]:
    """Import the API package of every system, in the order of the list."""
    return cast("Mapping[System, SystemApi]", import_modules("api.{}"))


ROUTE_GROUPS: Sequence[Routes] = (
    *(api.routes for api in import_api_packages().values()),
    webhooks.routes,
    overview.routes,
    pauses.routes,
    projects.routes,
    quotas.routes,
    audit.routes,
    session.routes,
    codec.routes,
    health.routes,
    docs.routes,
    console.routes,
)
"""In the order in which the API reference lists them: what callers come for first, files of pages last."""


def build_app(services: Services, route_groups: Sequence[Routes] = ROUTE_GROUPS) -> web.Application:
    """Return the application over these services, which the caller closes."""
    settings = services.settings
    _require_long_secrets(settings)
    app = web.Application(
        middlewares=[middleware.trace_request] if tracing.is_span_export_started() else [],
        client_max_size=settings.api.body_max_bytes,
    )
    app[middleware.DEADLINES] = deadlines.DeadlineQueue(
        settings.api.request_timeout_seconds, services.find_hanging_component
    )
    app[docs.DOCUMENT] = docs.LazilyEncodedOpenApiDocument(route_groups)
    app.on_response_prepare.append(middleware.set_response_headers)
    request_rates = app[rates.REQUEST_RATES] = rates.RequestRates()
    authenticator = app[auth.AUTHENTICATOR] = auth.Authenticator(services.database, settings, services.sealer)
    app[pauses.CACHE] = pauses.CachedPauseCheckBySystem(services.database)
    app[pauses.RESUME_HOOKS] = {}
    app[daily_quotas.DAILY_QUOTAS] = daily_quotas.DailyQuotaCounter(services.database)
    app.on_cleanup.append(daily_quotas.save_daily_counts_at_stop)
    app[auth.PUSH_AUTHENTICATOR] = auth.PubSubPushAuthenticator(services.http, settings.addresses.push)
    suffixes = group_remainders_by_slash_prefix({route.path for group in route_groups for route in group})
    for group in route_groups:
        if group.attach:
            group.attach(app, services)
        for route in group:
            path = build_aiohttp_path_excluding_words_of_other_paths(route.path, suffixes, route.slashes)
            handler = build_handler(route, services, authenticator, request_rates)
            if route.reads_ahead:
                handler = _wrap_handling_during_key_check(handler, route, services, authenticator, request_rates)
            expect_handler = server.build_continue_handler(route.body_max_bytes or settings.api.body_max_bytes)
            app.router.add_route(route.method, path, handler, expect_handler=expect_handler)
    return app


def group_remainders_by_slash_prefix(paths: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Return the rest of every path after each of its prefixes that end with a slash."""
    suffixes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        for slash in re.finditer("/", path):
            suffixes[path[: slash.end()]].append(path[slash.end() :])
    return suffixes


def build_aiohttp_path_excluding_words_of_other_paths(
    path: str, remainders_by_prefix: Mapping[str, Sequence[str]], variable_with_slashes: str = ""
) -> str:
    """Return a path as aiohttp matches it: a variable never matches a word that another path has in its place.

    Args:
        remainders_by_prefix: The index of all paths.
        variable_with_slashes: The one that may hold slashes; it does not match what other paths have after it.
    """
    longer = "".join(f"(?<!{re.escape(f'/{suffix}')})" for suffix in remainders_by_prefix.get(f"{path}/", ()))

    def restrict_variable(variable: re.Match[str]) -> str:
        words = {suffix.partition("/")[0] for suffix in remainders_by_prefix[path[: variable.start()]]}
        taken = "|".join(sorted(re.escape(word) for word in words if word and not word.startswith("{")))
        not_taken = f"(?!(?:{taken})(?:/|$))" if taken else ""
        if variable[1] == variable_with_slashes:
            return f"{{{variable[1]}:{not_taken}.+{longer}}}"
        return f"{{{variable[1]}:{not_taken}[^/]+}}" if taken else variable[0]

    return re.sub(r"{(\w+)}", restrict_variable, path)


def build_handler(
    route: Route, services: Services, authenticator: auth.Authenticator, request_rates: rates.RequestRates
) -> RequestHandler:
    """Return the aiohttp handler of a route: authenticate, parse the inputs, call the route's handler.

    What a route's declaration alone decides is decided here, once, rather than for each request.
    """
    limits = services.settings.api
    if route.body_max_bytes:
        limits = limits.model_copy(update={"body_max_bytes": route.body_max_bytes})
    is_public = route.access is RouteAccess.PUBLIC
    is_refused_to_revoked_projects, begins_work = route.is_refused_to_revoked_projects, route.begins_work
    has_inputs = bool(route.path_model or route.query or route.headers or route.body)
    is_audited, lists_rows, is_for_web_ui = audit.is_audited(route), route.lists_rows, route.for_web_ui

    async def handle_request(request: web.Request) -> web.StreamResponse:
        state = request[REQUEST_STATE]
        state.route = route
        if is_for_web_ui:
            state.headers.update(codec.build_cors_headers(request, services.settings))
        caller = (
            ANYBODY if is_public else await _identify_count_and_authorize(route, request, authenticator, request_rates)
        )
        if is_refused_to_revoked_projects and caller.is_admin and caller.project_id is not None:
            # A revoked project's own keys are refused before.
            await projects.require_active_project(services.database, caller.project_id)
        if begins_work:
            await request.app[pauses.CACHE].require_running(route.tag)
        inputs = {}
        if has_inputs or "?" in request.raw_path:
            inputs = await _check_owner_and_parse_inputs(route, request, caller, limits)
        if inputs or route.deprecated:
            _announce_deprecations(route, state, caller, inputs)
        call = Call(request, caller, services, route)
        if lists_rows:
            async with request_rates.wait_for_turn_to_list_rows(caller):
                return _build_response(route, await route.handler(call, **inputs))
        if not is_audited or audit.is_dry_run(inputs.get("body")):
            return _build_response(route, await route.handler(call, **inputs))
        async with audit.record_action_before_and_status_after(call, inputs.get("body")) as entry:
            response = _build_response(route, await route.handler(call, **inputs))
            entry.status = response.status
        return response

    return handle_request


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then let requests in progress finish."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tracing.start_span_export(settings.traces, "haulage-api")
    async with services.open_services(settings) as connected:
        await services.require_revision_and_record_key_use(connected)
        async with server.open_server(build_app(connected), settings.api) as (address, *own):
            # What is loaded by now stays, so the garbage collector need not visit it again. It may also run less often:
            # requests leave no reference cycles behind, and a thousand requests in progress are not garbage.
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            log.get(__name__).info("api_ready", address=address, own=next(iter(own), address))
            await stop.wait()
            log.get(__name__).info("api_stopping")
    await tracing.stop_span_export()


async def _identify_count_and_authorize(
    route: Route, request: web.Request, authenticator: auth.Authenticator, request_rates: rates.RequestRates
) -> Caller:
    """Return the caller; a project's requests are counted whether or not the route is open to it."""
    if route.access is RouteAccess.PUSH:
        await request.app[auth.PUSH_AUTHENTICATOR].require_valid_push_token(request)
        return Caller()
    caller = await authenticator.identify_without_authorizing(request, route)
    _bind_caller_to_log(caller)
    request_rates.count_request_within_quota(caller)
    caller = await authenticator.authorize(caller, request, route)
    if caller.is_admin:
        _bind_caller_to_log(caller)
    return caller


def _wrap_handling_during_key_check(
    handle: RequestHandler,
    route: Route,
    services: Services,
    authenticator: auth.Authenticator,
    request_rates: rates.RequestRates,
) -> RequestHandler:
    """Return a handler that reads while the key is checked, and responds once it is known to be what it was before."""

    async def read_ahead_or_handle(request: web.Request) -> web.StreamResponse:
        request[REQUEST_STATE].route = route
        check = None if "?" in request.raw_path else authenticator.begin_key_check(request, route)
        if check is None:
            return await handle(request)
        caller, checked = check
        answer: HandlerAnswer = None
        fault = None
        try:
            await authenticator.authorize(caller, request, route)
            inputs = await _check_owner_and_parse_inputs(route, request, caller, services.settings.api)
            answer = await route.handler(Call(request, caller, services, route), **inputs)
        except Exception as error:  # noqa: BLE001 - it is raised once the key is known to be good
            fault = error
        if await checked != caller:
            return await handle(request)
        _bind_caller_to_log(caller)
        request_rates.count_request_within_quota(caller)
        if fault is not None:
            raise fault
        return _build_response(route, answer)

    return read_ahead_or_handle


def _bind_caller_to_log(caller: Caller) -> None:
    if caller.project_id:
        log.bind(project_id=caller.project_id, key_id=caller.key_id)


async def _check_owner_and_parse_inputs(
    route: Route, request: web.Request, caller: Caller, limits: ApiSettings
) -> dict[str, Any]:
    """Return the handler's arguments. The project is checked before the body is read."""
    inputs: dict[str, Any] = {}
    if route.path_model:
        inputs["path"] = parsing.parse_path(request, route.path_model)
    if route.access is RouteAccess.OWNER:
        auth.require_owner_or_admin(caller, inputs["path"].project_id)
    if route.query or request.query_string:
        # These parameters were read by the authenticator.
        ignored = [auth.PROJECT_PARAMETER] if route.allows_project_in_query else []
        ignored += [auth.TICKET_PARAMETER] if route.takes_ticket else []
        query = parsing.parse_query(request, route.query or EmptyQuery, ignored)
        if route.query:
            inputs["query"] = query
    if route.headers:
        inputs["headers"] = parsing.parse_headers(request, route.headers)
    if route.body and route.body_optional and not request.body_exists:
        inputs["body"] = route.body()
    elif route.body:
        # A body of unknown length, or one larger than other routes allow, needs the larger limit of this route.
        if route.body_max_bytes and not 0 < (request.content_length or 0) <= request.client_max_size:
            request = request.clone(client_max_size=route.body_max_bytes)
        inputs["body"] = await parsing.parse_body(request, route.body, limits, headerless=route.headerless)
    return inputs


def _announce_deprecations(route: Route, state: RequestState, caller: Caller, inputs: Mapping[str, BaseModel]) -> None:
    """Name by headers and in the log what a request uses that a later release will not have."""
    used = [(route.name, route.deprecated)] if route.deprecated else []
    used += [found for model in inputs.values() for found in find_deprecated_fields(model)]
    if not used:
        return
    since = min(datetime.combine(mark.since, time.min, UTC) for _, mark in used)
    until = min(datetime.combine(mark.until, time.min, UTC) for _, mark in used)
    state.headers["Deprecation"] = f"@{since.timestamp():.0f}"  # RFC 9745
    state.headers["Sunset"] = format_datetime(until, usegmt=True)  # RFC 8594
    for name, mark in used:
        _log_deprecation_once_per_key(caller.actor, route.name, name, mark.instead)


@lru_cache(maxsize=10_000)
def _log_deprecation_once_per_key(actor: str, route: str, name: str, instead: str) -> None:
    """Log it once for each key: a caller that does nothing else would fill the log."""
    log.get(__name__).warning("deprecated_name_used", actor=actor, route=route, name=name, instead=instead)


def _build_response(route: Route, answer: HandlerAnswer) -> web.StreamResponse:
    # `isinstance` of an abstract class, as both of these are, costs as much as the rest.
    if type(answer) is route.response:
        return _build_json_response(route, answer)
    match answer:
        case web.StreamResponse():
            return answer
        case BaseModel():
            return _build_json_response(route, answer)
        case None:
            return web.Response(status=route.status)


def _build_json_response(route: Route, answer: BaseModel) -> web.Response:
    """Return what `model_dump_json` returns, without a text between."""
    return middleware.JsonResponse(route.status, answer.__pydantic_serializer__.to_json(answer))


def _require_long_secrets(settings: Settings) -> None:
    for name, key in settings.api.list_admin_keys().items():
        if len(key.get_secret_value()) < ADMIN_KEY_MIN_CHARACTERS:
            raise Invalid(
                "admin_key_short",
                f"The admin key {name or 'of HAULAGE_API__ADMIN_KEY'} has fewer than {ADMIN_KEY_MIN_CHARACTERS} "
                "characters, so that it could be guessed.",
                "Set it to a random text.",
            )
    if min(map(len, settings.secrets.list_peppers())) < PEPPER_MIN_CHARACTERS:
        raise Invalid(
            "pepper_short",
            "HAULAGE_SECRETS__PEPPER, or one of OTHER_PEPPERS beside it, has fewer than "
            f"{PEPPER_MIN_CHARACTERS} characters, so that hashes of keys would be weak.",
            "Set it to a random text, the same in every API process.",
        )
