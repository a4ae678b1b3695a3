"""Authentication: callers by API key or console session, and Pub/Sub by its push token."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from aiohttp import hdrs, web
from multidict import istr

from api.batching import UncachedReadByKey
from api.http.rates import RefusalDelay
from api.http.routes import Caller, Route, RouteAccess
from api.http.sessions import (
    CONSOLE_HEADER,
    COOKIE_NAME,
    TICKET_SECONDS,
    ConsoleSession,
    PathTicket,
    SessionCookiesAndTickets,
    read_cookies_or_empty,
)
from clients.http import GuardedClient
from clients.push_tokens import InvalidPushToken, PushTokenVerifier
from domain import secrets
from domain.faults import Forbidden, Missing, Unauthenticated
from domain.quotas import QuotaLimits
from domain.secrets import KeyRight
from infra import log
from infra.address_settings import PubSubPushSettings
from infra.database import Database
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import projects as store
from stores.projects import KeyCredential
from systems import SYSTEMS

SHARED_READ_PAUSE_SECONDS = 0.002
"""Between two reads of a key that several calls use at the same time."""
PROJECT_HEADER = istr("Haulage-Project")
PROJECT_PARAMETER = "project"
TICKET_PARAMETER = "ticket"

OVERRIDES_CACHE_MAX = 1_000
"""Different texts of quotas of projects whose parsed form is remembered."""

KeyCheck: TypeAlias = tuple[Caller, asyncio.Future[Caller | None]]
"""Whose key it was when it was last checked, and whose it is."""
_PROJECT_ID = re.compile(secrets.PROJECT_ID_PATTERN, re.ASCII)

ADMIN_KEY_NEEDED = "admin_key_needed"
KEY_LACKS_RIGHT = "key_lacks_right"
_ADMIN_HINT = f"Use that of the server: HAULAGE_API__ADMIN_KEY or HAULAGE_API__ADMIN_KEYS. {secrets.LOCAL_KEYS_HINT}"
KEY_HINT = f"Send it as `Authorization: Bearer hlg_…`. {secrets.LOCAL_KEYS_HINT}"
HEADERLESS_KEY_HINT = f"Put it into the address, `http://:hlg_…@host`, or send{KEY_HINT.removeprefix('Send')}"
PUSH_HINT = (
    "Let the subscription push with a token for HAULAGE_ADDRESSES__PUSH__AUDIENCE by the account "
    "HAULAGE_ADDRESSES__PUSH__EMAIL, or with HAULAGE_ADDRESSES__PUSH__SECRET behind `?token=` in its endpoint."
)


class Authenticator:
    """Authenticate callers by key or console session.

    Every call reads the key from the database, so a revoked key is refused at once on every replica; calls with the
    same key at the same time share one read.
    """

    def __init__(self, database: Database, settings: Settings, sealer: SecretSealer) -> None:
        self.cookies = SessionCookiesAndTickets(sealer, settings)
        self._database = database
        self._admin_keys = {
            name: key.get_secret_value().encode() for name, key in settings.api.list_admin_keys().items()
        }
        self._peppers = settings.secrets.list_peppers()
        self._pepper_id = secrets.derive_pepper_id(self._peppers[0])
        self._callers = UncachedReadByKey(self._find_caller_and_record_key_use, SHARED_READ_PAUSE_SECONDS)
        self._keys = UncachedReadByKey(self._find_live_key_and_record_use)
        self._projects = UncachedReadByKey(self._find_quotas_unless_project_missing)
        self._read_quotas = lru_cache(OVERRIDES_CACHE_MAX)(
            lambda overrides: settings.quotas.with_overrides(json.loads(overrides))
        )
        self._refusals = RefusalDelay(settings.api.wrong_keys_per_minute)

    async def authenticate(self, request: web.Request, route: Route, *, is_response_started: bool = False) -> Caller:
        """Return the caller of a request, if this route is open to them.

        Args:
            is_response_started: Whether the response is being sent already: then a ticket may have ended meanwhile.

        Raises:
            Unauthenticated: There is no key, or it is unknown, revoked or expired.
            Missing: The key is valid, and what the request names is not its project's.
            Forbidden: The key may not do this, or it is not the admin key, which this needs.
        """
        caller = await self.identify_without_authorizing(request, route, is_response_started=is_response_started)
        return await self.authorize(caller, request, route)

    async def identify_without_authorizing(
        self, request: web.Request, route: Route, *, is_response_started: bool = False
    ) -> Caller:
        """Return the caller of a request, whether or not the route is open to them; raises Unauthenticated."""
        if route.access is RouteAccess.PUBLIC:
            return Caller()
        if route.takes_ticket and TICKET_PARAMETER in request.query and hdrs.AUTHORIZATION not in request.headers:
            return await self._identify_by_ticket(request, is_response_started=is_response_started)
        if hdrs.AUTHORIZATION in request.headers or COOKIE_NAME not in read_cookies_or_empty(request):
            return await self.identify_by_key_and_delay_refusal(_require_key_in_header(request, route), request.remote)
        return await self._identify_by_session(request, route)

    async def authorize(self, caller: Caller, request: web.Request, route: Route) -> Caller:
        """Return the caller as one of the project of the request, if this route is open to them.

        Raises:
            Missing: What the request names is not the project's.
            Forbidden: The key may not do this, or it is not the admin key, which this needs.
        """
        if route.access is RouteAccess.PUBLIC:
            return caller
        if route.access is RouteAccess.ADMIN and not caller.is_admin:
            # The same whatever the path names, so that it says nothing of what there is.
            raise Forbidden(ADMIN_KEY_NEEDED, "This needs the admin key, and this is a key of a project.", _ADMIN_HINT)
        _require_permissions(caller, route)
        is_named = request.query_string and route.allows_project_in_query and PROJECT_PARAMETER in request.query
        if PROJECT_HEADER in request.headers or is_named:
            return await self._switch_to_named_project(caller, _read_named_project(request, route), route)
        if route.access is RouteAccess.PROJECT and caller.is_admin:
            raise Unauthenticated(
                "project_key_needed",
                "The admin key belongs to no project, and this route works on one project.",
                f"Name it in the header {PROJECT_HEADER}, or use a key of that project; "
                f"POST /v1/projects/{{project_id}}/keys makes one. {secrets.LOCAL_KEYS_HINT}",
            )
        return caller

    async def identify_by_key_and_delay_refusal(self, token: str, address: str | None) -> Caller:
        """Return the caller to whom a key belongs.

        Args:
            address: The address of the caller, whose refusals come later and later while it sends wrong keys.

        Raises:
            Unauthenticated: The key is malformed, unknown, revoked or expired.
            QuotaExhausted: The same, and too many refusals of this address wait already.
        """
        for name, key in self._admin_keys.items():
            if hmac.compare_digest(token.encode(), key):
                return Caller(is_admin=True, admin_name=name)
        caller = await self._callers.read_anew(token)
        if caller is None:
            await self._refusals.count_wrong_key_and_delay_refusal(address or "")
            raise _build_wrong_key_error(token)
        return caller

    def begin_key_check(self, request: web.Request, route: Route) -> KeyCheck | None:
        """Begin to check a key that was good before; None for other requests, and those that name a project."""
        token = _require_key_in_header(request, route) if hdrs.AUTHORIZATION in request.headers else ""
        caller = self._callers.guess(token)
        if caller is None or PROJECT_HEADER in request.headers:
            return None
        return caller, self._callers.queue_read_after_current(token)

    async def sign_in(self, token: str, address: str | None) -> tuple[Caller, ConsoleSession]:
        """Return the caller to whom a key belongs, and a session that ends with it at the latest; raises the same."""
        caller = await self.identify_by_key_and_delay_refusal(token, address)
        key = secrets.parse_api_key(token)
        if caller.is_admin or key is None:
            return caller, self.cookies.create_session("", self._admin_keys[caller.admin_name])
        record = await self._keys.read_anew(key.key_id)
        if record is None:
            raise _build_wrong_key_error(token)
        return caller, self.cookies.create_session(key.key_id, record.secret_hash)

    async def _identify_by_session(self, request: web.Request, route: Route) -> Caller:
        session = self.cookies.read_session(request)
        if session is None:
            raise _build_session_error()
        if not self.cookies.is_cookie_sufficient(request, for_web_ui=route.for_web_ui):
            raise Unauthenticated(
                "session_origin_unproven",
                "The session's cookie alone does not allow this: any page could have made the browser send it.",
                f"Send the header `{CONSOLE_HEADER}: 1` with it, or a key as `Authorization: Bearer hlg_…`.",
            )
        return await self._identify_session_owner(session)

    async def create_ticket(self, caller: Caller, path: str) -> tuple[str, datetime]:
        """Return a ticket for one path of the caller's project, and its end."""
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=TICKET_SECONDS)
        record = await self._keys.read_anew(caller.key_id) if caller.key_id else None
        credential = record.secret_hash if record else self._admin_keys[caller.admin_name]
        session = ConsoleSession(caller.key_id or "", self.cookies.digest_credential(credential), until)
        return self.cookies.seal_ticket(PathTicket(session, caller.project_id or "", path)), until

    async def _identify_by_ticket(self, request: web.Request, *, is_response_started: bool) -> Caller:
        ticket = self.cookies.read_ticket_even_if_ended(request.query[TICKET_PARAMETER])
        if ticket is None or ticket.path != request.path:
            raise Unauthenticated("ticket_mismatch", "It is no ticket for this address.", "Ask for one with your key.")
        if ticket.session.until <= datetime.now(UTC) and not is_response_started:
            raise Unauthenticated("ticket_expired", "This ticket has ended.", "Ask for a new one with your key.")
        caller = await self._identify_session_owner(ticket.session)
        quotas = caller.quotas or await self._projects.read_anew(ticket.project_id)
        return replace(
            caller, project_id=ticket.project_id, is_admin=False, right=KeyRight.READ, until=None, quotas=quotas
        )

    async def _identify_session_owner(self, session: ConsoleSession) -> Caller:
        """Return the caller whose key began a session, if the key is still valid."""
        if not session.key_id:
            return self._identify_admin_session(session)
        record = await self._keys.read_anew(session.key_id)
        if record is None or not self.cookies.is_session_of_credential(session, record.secret_hash):
            raise _build_session_error()
        return replace(self._build_caller(session.key_id, record), until=session.until)

    def _identify_admin_session(self, session: ConsoleSession) -> Caller:
        for name, key in self._admin_keys.items():
            if self.cookies.is_session_of_credential(session, key):
                return Caller(is_admin=True, admin_name=name, until=session.until)
        raise _build_session_error()

    async def _switch_to_named_project(self, caller: Caller, project_id: str, route: Route) -> Caller:
        """Return the caller as one of the project that the request names."""
        require_owner_or_admin(caller, project_id)
        if not (caller.is_admin and route.is_within_project):
            return caller
        quotas = await self._projects.read_anew(project_id) if _PROJECT_ID.fullmatch(project_id) else None
        if quotas is None:
            raise Missing("not_found", f"There is no project {project_id!r}.", "GET /v1/projects lists them.")
        return replace(caller, project_id=project_id, quotas=quotas)

    async def _find_caller_and_record_key_use(self, token: str) -> Caller | None:
        key = secrets.parse_api_key(token)
        if key is None:
            return None
        record = await store.find_key_credential(self._database, key.key_id)
        # An unknown id costs the same hash and comparison as a known one: timing reveals nothing.
        stored = record.secret_hash if record else bytes(32)
        digests = [secrets.digest_secret(pepper, key.secret) for pepper in self._peppers]
        matches = max(hmac.compare_digest(stored, digest) for digest in digests)
        if record is None or not (matches and record.is_live):
            return None
        if record.is_use_due:
            # Only here is the secret known in clear: a key that is used needs no earlier pepper from then on.
            await store.record_key_use_and_rehash(self._database, key.key_id, digests[0], self._pepper_id)
        return self._build_caller(key.key_id, record)

    def _build_caller(self, key_id: str, record: KeyCredential) -> Caller:
        quotas = self._read_quotas(record.quota_overrides)
        caller = Caller(record.project_id, key_id, right=record.right, systems=record.systems, quotas=quotas)
        return replace(caller, expires_at=record.expires_at)

    async def _find_live_key_and_record_use(self, key_id: str) -> KeyCredential | None:
        """Return the key of a session unless it was revoked."""
        record = await store.find_key_credential(self._database, key_id)
        if record is None or not record.is_live:
            return None
        if record.is_use_due:
            await store.record_time_of_key_use(self._database, key_id)
        return record

    async def _find_quotas_unless_project_missing(self, project_id: str) -> QuotaLimits | None:
        """Return the quotas of a project; None if there is no such project."""
        overrides = await store.get_overrides_json_if_project_exists(self._database, project_id)
        return None if overrides is None else self._read_quotas(overrides)


AUTHENTICATOR = web.AppKey("authenticator", Authenticator)


class PubSubPushAuthenticator:
    """Authenticate what Google Pub/Sub pushes."""

    def __init__(self, http: GuardedClient, settings: PubSubPushSettings) -> None:
        self._push_tokens = PushTokenVerifier(http, settings)

    async def require_valid_push_token(self, request: web.Request) -> None:
        """Accept a push that carries a valid token, even beside invalid ones: proxies may add headers of their own.

        Raises:
            Unauthenticated: It carries no valid token.
            ConnectionError: A token could not be checked, and no other one is valid.
        """
        reasons: list[str] = []
        unchecked: ConnectionError | None = None
        for token in _list_push_tokens(request):
            try:
                await self._push_tokens.require_valid_token(token)
            except InvalidPushToken as reason:
                reasons.append(str(reason))
            except ConnectionError as error:
                unchecked = error
            else:
                return
        if unchecked is not None:
            raise unchecked
        # The reasons are for the operator alone: they must not help a guesser.
        log.get(__name__).warning("push_refused", reason="; ".join(reasons), credentials=len(reasons))
        raise Unauthenticated("push_refused", "This push carries no valid token.", PUSH_HINT)


PUSH_AUTHENTICATOR = web.AppKey("push_authenticator", PubSubPushAuthenticator)


def require_owner_or_admin(caller: Caller, project_id: str) -> None:
    """Require a key of this project, or the admin key.

    Raises:
        Missing: The caller belongs to another project; the answer is the same as for a project that does not exist.
    """
    if not caller.is_admin and caller.project_id != project_id:
        raise build_missing_to_caller_fault()


def _require_permissions(caller: Caller, route: Route) -> None:
    """Require that a key may do what a route does.

    Raises:
        Forbidden: It may not. The project is the caller's own, so that the answer need hide nothing.
    """
    if route.tag in SYSTEMS and caller.systems is not None and route.tag not in caller.systems:
        raise Forbidden(
            KEY_LACKS_RIGHT,
            f"This key is not for {route.tag}, but for {', '.join(sorted(caller.systems))}.",
            "Use another key of the project.",
        )
    if not caller.right.includes(route.needed_right):
        raise Forbidden(
            KEY_LACKS_RIGHT,
            f"This key has the right to {caller.right}, and this needs the right to {route.needed_right}.",
            "Use another key of the project.",
        )


def build_missing_to_caller_fault() -> Missing:
    """Return the fault for what does not exist or belongs to another project."""
    return Missing("not_found", "There is nothing here for this key.", "Check the id, or use the key that owns it.")


def _build_wrong_key_error(token: str) -> Unauthenticated:
    if secrets.parse_api_key(token) is None:
        message = "This is neither the admin key nor a project's key, or a character of it was lost."
        return Unauthenticated("key_malformed", message, secrets.LOCAL_KEYS_HINT)
    hint = f"Ask for a new key of the project. {secrets.LOCAL_KEYS_HINT}"
    return Unauthenticated("key_unknown", "This key is unknown, was revoked, or has expired.", hint)


def _build_session_error() -> Unauthenticated:
    return Unauthenticated("session_expired", "This session is over, or its key was revoked.", "Sign in again.")


def _read_named_project(request: web.Request, route: Route) -> str:
    """Return the project that a request names in its header, or in its query where browsers can set no header."""
    named = request.headers.getall(PROJECT_HEADER, [])
    if route.allows_project_in_query:
        named += request.query.getall(PROJECT_PARAMETER, [])
    # Two different names are refused: to prefer one of them would be arbitrary.
    return named[0] if len(set(named)) == 1 else ""


def _require_key_in_header(request: web.Request, route: Route) -> str:
    """Return the key of a request: a bearer token, or a Basic password on routes for clients that set no headers."""
    headers = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, credentials = (headers[0] if len(headers) == 1 else "").partition(" ")
    is_basic = route.headerless and scheme.lower() == "basic"
    key = _read_password_or_user_name(credentials) if is_basic else credentials.strip()
    if not (is_basic or scheme.lower() == "bearer") or not key.isascii() or not key:
        hint = HEADERLESS_KEY_HINT if route.headerless else KEY_HINT
        raise Unauthenticated("key_missing", "This route needs an API key.", hint)
    return key


def _read_password_or_user_name(credentials: str) -> str:
    """Return the password of HTTP Basic, or the user name where the password is empty."""
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return password.strip() or user.strip()


def _list_push_tokens(request: web.Request) -> list[str]:
    """Return all tokens of a push, an empty one for a header that holds none; the address, in no log, may hold one.

    A subscription of Pub/Sub cannot set a header. The secret comes first: to check it needs no request to Google.
    """
    headers = request.headers.getall("Authorization", [])
    return [*request.query.getall("token", []), *map(_read_bearer_token_or_empty, headers)] or [""]


def _read_bearer_token_or_empty(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
