"""Sessions of the console, and tickets: sealed references to a key that end with it at the latest. They hold no key."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.cookies import CookieError
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from domain.secrets import SealedText
from infra.secrets import SealUnreadableError, SecretSealer
from infra.settings import Settings

COOKIE_NAME = "haulage_session"
CONSOLE_HEADER = "Haulage-Console"
"""Pages of other sites cannot send it: the browser would ask for permission by CORS, which is never given."""

_PURPOSE = "haulage_session"
_TICKET_PURPOSE = "haulage_ticket"
TICKET_SECONDS = 60
"""How long a ticket opens a connection; the connection itself lasts as long as the key."""

_SAFE_METHODS = {hdrs.METH_GET, hdrs.METH_HEAD}


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session of a browser."""

    key_id: str
    """Empty for the admin key."""

    digest: bytes
    """Derived from the credential, so that the session ends when the credential changes."""

    until: datetime


@dataclass(frozen=True, slots=True)
class PathTicket:
    """The permission to read one path without a key, for a page whose script must not hold one."""

    session: ConsoleSession
    """Of the caller who created it, with the end of the ticket."""

    project_id: str
    path: str


def get_web_ui_origin(settings: Settings) -> str:
    """Return the origin of the pages of Temporal's Web UI; an empty text if its address is not set."""
    parts = urlsplit(settings.engine.ui_url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


class SessionCookiesAndTickets:
    """Create, write and read the session cookie, and tickets."""

    def __init__(self, sealer: SecretSealer, settings: Settings) -> None:
        self._sealer = sealer
        self._pepper = settings.secrets.pepper.get_secret_value().encode()
        self._base = settings.api.public_base
        self._web_ui_origin = get_web_ui_origin(settings)
        self._lifetime = timedelta(hours=settings.api.session_hours)

    def digest_credential(self, credential: bytes) -> bytes:
        """Return the digest of the admin key, or of the stored hash of a project's key."""
        return hmac.digest(self._pepper, f"{_PURPOSE} ".encode() + credential, hashlib.sha256)

    def create_session(self, key_id: str, credential: bytes) -> ConsoleSession:
        """Return a new session."""
        until = (datetime.now(UTC) + self._lifetime).replace(microsecond=0)
        return ConsoleSession(key_id, self.digest_credential(credential), until)

    def is_session_of_credential(self, session: ConsoleSession, credential: bytes) -> bool:
        """Return whether a session was begun with this credential."""
        return hmac.compare_digest(self.digest_credential(credential), session.digest)

    def read_session(self, request: web.Request) -> ConsoleSession | None:
        """Return the session of a request's cookie; None if there is none, it is forged, or it has ended."""
        text = self._unseal_or_empty(read_cookies_or_empty(request).get(COOKIE_NAME, ""))
        purpose, _, rest = text.partition(" ")
        if purpose != _PURPOSE:
            return None  # Sealed for another purpose.
        until, digest, key_id = rest.split(" ")
        session = ConsoleSession(key_id, bytes.fromhex(digest), datetime.fromtimestamp(int(until), UTC))
        return session if session.until > datetime.now(UTC) else None

    def seal_ticket(self, ticket: PathTicket) -> str:
        """Return a ticket as a text for a query."""
        session = ticket.session
        text = (
            f"{_TICKET_PURPOSE} {int(session.until.timestamp())} {session.digest.hex()} {session.key_id} "
            f"{ticket.project_id} {ticket.path}"
        )
        return self._sealer.seal(text).token.rstrip("=")

    def read_ticket_even_if_ended(self, token: str) -> PathTicket | None:
        """Return a ticket, also one that has ended; None if it is forged."""
        text = self._unseal_or_empty(token)
        purpose, _, rest = text.partition(" ")
        if purpose != _TICKET_PURPOSE:
            return None
        until, digest, key_id, project_id, path = rest.split(" ", 4)
        session = ConsoleSession(key_id, bytes.fromhex(digest), datetime.fromtimestamp(int(until), UTC))
        return PathTicket(session, project_id, path)

    def _unseal_or_empty(self, token: str) -> str:
        """Return a sealed text; an empty one if it was not sealed by this installation."""
        if not token.isascii():
            return ""
        try:
            return self._sealer.open(SealedText(token=token + "=" * (-len(token) % 4)))
        except SealUnreadableError:
            return ""

    def set_cookie(self, request: web.Request, response: web.Response, session: ConsoleSession) -> None:
        """Set the cookie of a session."""
        text = f"{_PURPOSE} {int(session.until.timestamp())} {session.digest.hex()} {session.key_id}"
        # Without base64 padding the cookie's value needs no quotes.
        token = self._sealer.seal(text).token.rstrip("=")
        response.set_cookie(
            COOKIE_NAME,
            token,
            max_age=math.ceil((session.until - datetime.now(UTC)).total_seconds()),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self._is_https(request),
        )

    def delete_cookie(self, request: web.Request, response: web.Response) -> None:
        """Delete the cookie."""
        response.del_cookie(COOKIE_NAME, path="/", httponly=True, samesite="Strict", secure=self._is_https(request))

    def is_cookie_sufficient(self, request: web.Request, *, for_web_ui: bool = False) -> bool:
        """Return whether the cookie is enough: for reads always, for writes and sockets only from our own pages.

        Args:
            for_web_ui: Whether pages of Temporal's Web UI count as well: no other page can claim their origin.
        """
        if for_web_ui and self._web_ui_origin and request.headers.get(hdrs.ORIGIN) == self._web_ui_origin:
            return True
        if request.headers.get(hdrs.UPGRADE):
            return self._is_same_origin(request)
        if request.method in _SAFE_METHODS:
            return True
        site = request.headers.get("Sec-Fetch-Site")
        return site == "same-origin" if site else request.headers.get(CONSOLE_HEADER) == "1"

    def _is_same_origin(self, request: web.Request) -> bool:
        """Return whether a socket is opened by our own page: SameSite alone would admit other hosts of our domain."""
        try:
            origin = urlsplit(request.headers.get(hdrs.ORIGIN, "")).netloc
        except ValueError:  # such as http://[::1
            return False
        return origin in {request.host, urlsplit(self._base).netloc or request.host}

    def _is_https(self, request: web.Request) -> bool:
        # A caller who forges the proxy's header changes only their own cookie.
        proxy = request.headers.get(hdrs.X_FORWARDED_PROTO, "")
        return "https" in {request.scheme, proxy, urlsplit(self._base).scheme}


def read_cookies_or_empty(request: web.Request) -> Mapping[str, str]:
    """Return the cookies of a request; none where its header cannot be parsed."""
    try:
        return request.cookies
    except (ValueError, CookieError):
        return {}
