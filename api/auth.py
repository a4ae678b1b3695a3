"""Who calls: a project's key or the admin key, from `Authorization: Bearer …` and from nowhere else."""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta

from aiohttp import web
from sqlalchemy import ColumnElement
from sqlmodel import col, func, or_

from api.routes import Access, Caller
from api.together import Together
from domain import projects
from domain.faults import Denied, Missing
from infra.database import Database
from infra.settings import Settings

LAST_USED_PRECISION = timedelta(minutes=1)  # so that a busy key costs a write a minute, not one a call

HINT = "Send it as `Authorization: Bearer hlg_…`."


class Gate:
    """Knows callers by their keys.

    Every call asks the database, so that a revoked key is out at once, on every replica; calls that come with one key
    at the same time are looked at together.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._admin_key = settings.api.admin_key.get_secret_value().encode()
        self._pepper = settings.secrets.pepper.get_secret_value()
        self._owners = Together(self._owner)

    async def admit(self, request: web.Request, access: Access) -> Caller:
        """Who this is, if they may use routes of this access at all.

        Raises:
            Denied: There is no key, or none of ours, or it was revoked.
            Missing: The key is right, and opens other doors than this one.
        """
        if access is Access.PUBLIC:
            return Caller()
        caller = await self._identify(_bearer(request))
        if access is Access.ADMIN and not caller.is_admin:
            raise not_here()
        if access is Access.PROJECT and caller.is_admin:
            raise Denied(
                "project_key_needed",
                "The admin key belongs to no project, and this route works on the caller's own project.",
                "Use a key of that project; POST /v1/projects/{project_id}/keys makes one.",
            )
        return caller

    async def _identify(self, token: str) -> Caller:
        if self._admin_key and hmac.compare_digest(token.encode(), self._admin_key):
            return Caller(is_admin=True)
        owner = await self._owners.ask(token)
        if owner is None:
            raise _not_ours(token)
        return owner

    async def _owner(self, token: str) -> Caller | None:
        """Whose key this is."""
        key = projects.parse(token)
        if key is None:
            return None
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_KEY, key.key_id, LAST_USED_PRECISION)
            # An unknown id costs the same hash and comparison as a known one, so that time tells nothing.
            stored = row["hash"] if row else bytes(32)
            matches = hmac.compare_digest(stored, projects.digest(self._pepper, key.secret))
            if row is None or not (matches and row["live"]):
                return None
            if row["unseen"]:
                await connection.execute(_USED, key.key_id)
        return Caller(project_id=row["project_id"], key_id=key.key_id)


GATE = web.AppKey("gate", Gate)

# Not through the ORM: it is asked for every call.
_KEY = """
    SELECT k.project_id, k.hash, coalesce(k.last_used_at <= now() - $2::interval, true) AS unseen,
        coalesce(least(k.revoked_at, p.revoked_at) > now(), true) AS live
    FROM api_keys k JOIN projects p ON p.id = k.project_id WHERE k.id = $1
"""
_USED = "UPDATE api_keys SET last_used_at = now() WHERE id = $1"


def _not_ours(token: str) -> Denied:
    if projects.parse(token) is None:
        return Denied("key_malformed", "This is not a Haulage key, or a character of it was lost.", HINT)
    return Denied("key_unknown", "This key is unknown or was revoked.", "Ask for a new key of the project.")


def is_live(revoked_at: datetime | None) -> ColumnElement[bool]:
    """Whether what this column ends still holds now, by the database's clock, which all replicas share."""
    return or_(col(revoked_at).is_(None), col(revoked_at) > func.now())


def check_owner(caller: Caller, project_id: str) -> None:
    """Another project's key sees no difference between a foreign project and none."""
    if not caller.is_admin and caller.project_id != project_id:
        raise not_here()


def not_here() -> Missing:
    """What a valid key is told about what is not its own."""
    return Missing("not_found", "There is nothing here for this key.", "Check the id, or use the key that owns it.")


def _bearer(request: web.Request) -> str:
    headers = request.headers.getall("Authorization", [])
    scheme, _, token = (headers[0] if len(headers) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token.isascii() or not token.strip():
        raise Denied("key_missing", "This route needs an API key.", HINT)
    return token.strip()
