"""Who calls: a project's key or the admin key, from the header `Authorization`, or who signed in to the console."""

from __future__ import annotations

import base64
import binascii
import hmac
import re

from aiohttp import hdrs, web
from multidict import istr

from api.cookies import NAME, OWN_HEADER, ConsoleSession, Cookies
from api.routes import Access, Caller, Route
from api.together import Together
from domain import projects
from domain.faults import Denied, Missing
from infra.database import Database
from infra.sealing import Sealer
from infra.settings import Settings
from stores.shared import projects as store
from stores.shared.projects import KeyRecord

BUSY_SECONDS = 0.002
"""From one look at a key to the next, where many calls come with it."""
PROJECT_HEADER = istr("Haulage-Project")
PROJECT_PARAMETER = "project"

_PROJECT_ID = re.compile(projects.PROJECT_ID_PATTERN, re.ASCII)

HINT = "Send it as `Authorization: Bearer hlg_…`."
HINT_HEADERLESS = f"{HINT[:-1]}, or in the address: `http://:hlg_…@host`."


class Gate:
    """Knows callers by their keys.

    Every call asks the database, so that a revoked key is out at once, on every replica; calls that come with one key
    at the same time are looked at together.
    """

    def __init__(self, database: Database, settings: Settings, sealer: Sealer) -> None:
        self.cookies = Cookies(sealer, settings)
        self._database = database
        self._admin_key = settings.api.admin_key.get_secret_value().encode()
        self._pepper = settings.secrets.pepper.get_secret_value()
        self._owners = Together(self._owner, BUSY_SECONDS)
        self._sessions = Together(self._find_live_key)
        self._projects = Together(self._exists)

    async def admit(self, request: web.Request, route: Route) -> Caller:
        """Who this is, if they may use this route at all.

        Raises:
            Denied: There is no key, or none of ours, or it was revoked.
            Missing: The key is right, and opens other doors than this one.
        """
        if route.access is Access.PUBLIC:
            return Caller()
        if hdrs.AUTHORIZATION in request.headers or NAME not in request.cookies:
            caller = await self.identify(_key_of(request, route))
        else:
            caller = await self._signed_in(request)
        if route.access is Access.ADMIN and not caller.is_admin:
            raise not_here()
        if PROJECT_HEADER in request.headers or (request.query_string and _is_in_query(request, route)):
            return await self._within(caller, _project(request, route), route)
        if route.access is Access.PROJECT and caller.is_admin:
            raise Denied(
                "project_key_needed",
                "The admin key belongs to no project, and this route works on one project.",
                f"Name it in the header {PROJECT_HEADER}, or use a key of that project; "
                "POST /v1/projects/{project_id}/keys makes one.",
            )
        return caller

    async def identify(self, token: str) -> Caller:
        """Whose key this is.

        Raises:
            Denied: It is none of ours, or it was revoked.
        """
        if self._admin_key and hmac.compare_digest(token.encode(), self._admin_key):
            return Caller(is_admin=True)
        owner = await self._owners.ask(token)
        if owner is None:
            raise _not_ours(token)
        return owner

    async def sign_in(self, token: str) -> tuple[Caller, ConsoleSession]:
        """Whose key this is, and a session that lasts no longer than the key.

        Raises:
            Denied: It is none of ours, or it was revoked.
        """
        caller = await self.identify(token)
        key = projects.parse(token)
        if caller.is_admin or key is None:
            return caller, self.cookies.begin("", self._admin_key)
        return caller, self.cookies.begin(key.key_id, projects.digest(self._pepper, key.secret))

    async def _signed_in(self, request: web.Request) -> Caller:
        session = self.cookies.read(request)
        if session is None:
            raise _session_over()
        if not self.cookies.may_act(request):
            raise Denied(
                "session_not_enough",
                "A session's cookie alone lets nobody do this: any page could have made the browser send it.",
                f"Send the header `{OWN_HEADER}: 1` with it, or a key as `Authorization: Bearer hlg_…`.",
            )
        credential, caller = self._admin_key, Caller(is_admin=True, until=session.until)
        if session.key_id:
            record = await self._sessions.ask(session.key_id)
            credential = record.secret_hash if record else b""
            caller = Caller(record.project_id if record else None, session.key_id, until=session.until)
        if not credential or not hmac.compare_digest(self.cookies.mark(credential), session.mark):
            raise _session_over()
        return caller

    async def _within(self, caller: Caller, project_id: str, route: Route) -> Caller:
        """The caller in the one project that it names."""
        check_owner(caller, project_id)
        if not (caller.is_admin and route.is_within_project):
            return caller
        if not _PROJECT_ID.fullmatch(project_id) or not await self._projects.ask(project_id):
            raise Missing("not_found", f"There is no project {project_id!r}.", "GET /v1/projects lists them.")
        return Caller(project_id=project_id, is_admin=True, until=caller.until)

    async def _owner(self, token: str) -> Caller | None:
        """Whose key this is."""
        key = projects.parse(token)
        if key is None:
            return None
        record = await store.find_key_record(self._database, key.key_id)
        # An unknown id costs the same hash and comparison as a known one, so that time tells nothing.
        stored = record.secret_hash if record else bytes(32)
        matches = hmac.compare_digest(stored, projects.digest(self._pepper, key.secret))
        if record is None or not (matches and record.is_live):
            return None
        if record.is_use_due:
            await store.note_use(self._database, key.key_id)
        return Caller(project_id=record.project_id, key_id=key.key_id)

    async def _find_live_key(self, key_id: str) -> KeyRecord | None:
        """The key that a session was begun with, if it still opens anything."""
        record = await store.find_key_record(self._database, key_id)
        if record is None or not record.is_live:
            return None
        if record.is_use_due:
            await store.note_use(self._database, key_id)
        return record

    async def _exists(self, project_id: str) -> bool:
        return await store.exists(self._database, project_id)


GATE = web.AppKey("gate", Gate)


def _not_ours(token: str) -> Denied:
    if projects.parse(token) is None:
        return Denied("key_malformed", "This is not a Haulage key, or a character of it was lost.", HINT)
    return Denied("key_unknown", "This key is unknown or was revoked.", "Ask for a new key of the project.")


def _session_over() -> Denied:
    return Denied("session_over", "This session is over, or the key that began it was revoked.", "Sign in again.")


def check_owner(caller: Caller, project_id: str) -> None:
    """Another project's key sees no difference between a foreign project and none."""
    if not caller.is_admin and caller.project_id != project_id:
        raise not_here()


def not_here() -> Missing:
    """What a valid key is told about what is not its own."""
    return Missing("not_found", "There is nothing here for this key.", "Check the id, or use the key that owns it.")


def _project(request: web.Request, route: Route) -> str:
    """The project that a request names: in the header, and where browsers can send none in the query."""
    named = request.headers.getall(PROJECT_HEADER, [])
    if route.project_in_query:
        named += request.query.getall(PROJECT_PARAMETER, [])
    # Two different ones are nobody's: which of them counted would be a matter of taste.
    return named[0] if len(set(named)) == 1 else ""


def _is_in_query(request: web.Request, route: Route) -> bool:
    return route.project_in_query and PROJECT_PARAMETER in request.query


def _key_of(request: web.Request, route: Route) -> str:
    """The key that a request shows, as Bearer, or where a route serves clients that set no header, as Basic."""
    headers = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, shown = (headers[0] if len(headers) == 1 else "").partition(" ")
    is_basic = route.headerless and scheme.lower() == "basic"
    key = _password(shown) if is_basic else shown.strip()
    if not (is_basic or scheme.lower() == "bearer") or not key.isascii() or not key:
        raise Denied("key_missing", "This route needs an API key.", HINT_HEADERLESS if route.headerless else HINT)
    return key


def _password(shown: str) -> str:
    """The password of HTTP Basic, or the user's name where there is none: an address has room for either."""
    try:
        user, _, password = base64.b64decode(shown.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return password.strip() or user.strip()
