"""The console's cookie: a sealed reference to who signed in, and when that ends. It holds no key."""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from domain.sealed import Sealed
from infra.sealing import Sealer, SealUnreadableError
from infra.settings import Settings

NAME = "haulage_session"
OWN_HEADER = "Haulage-Console"
"""Pages of other sites cannot send it: a browser would ask us first, and we never say yes."""

_PURPOSE = "haulage_session"
_READS = {hdrs.METH_GET, hdrs.METH_HEAD}


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Who signed in."""

    key_id: str
    """Empty for the admin key."""

    mark: bytes
    """Made of the credential, so that the session ends with it."""

    until: datetime


class Cookies:
    """Writes and reads what the cookie holds."""

    def __init__(self, sealer: Sealer, settings: Settings) -> None:
        self._sealer = sealer
        self._pepper = settings.secrets.pepper.get_secret_value().encode()
        self._base = settings.api.public_base
        self._lifetime = timedelta(hours=settings.api.session_hours)

    def mark(self, credential: bytes) -> bytes:
        """What stands for a credential: the admin key, or what is stored of a project's key."""
        return hmac.digest(self._pepper, f"{_PURPOSE} ".encode() + credential, hashlib.sha256)

    def begin(self, key_id: str, credential: bytes) -> ConsoleSession:
        """A new session."""
        until = (datetime.now(UTC) + self._lifetime).replace(microsecond=0)
        return ConsoleSession(key_id, self.mark(credential), until)

    def read(self, request: web.Request) -> ConsoleSession | None:
        """The session of a request's cookie, if it is one of ours and not over."""
        token = request.cookies.get(NAME, "")
        try:
            text = self._sealer.open(Sealed(token=token + "=" * (-len(token) % 4)))
        except SealUnreadableError:
            return None
        purpose, _, rest = text.partition(" ")
        if purpose != _PURPOSE:
            return None  # Something else that we sealed.
        until, mark, key_id = rest.split(" ")
        session = ConsoleSession(key_id, bytes.fromhex(mark), datetime.fromtimestamp(int(until), UTC))
        return session if session.until > datetime.now(UTC) else None

    def put(self, request: web.Request, response: web.Response, session: ConsoleSession) -> None:
        """Give the browser a session."""
        text = f"{_PURPOSE} {int(session.until.timestamp())} {session.mark.hex()} {session.key_id}"
        # Without what fills it up to fours, it needs no quotes.
        token = self._sealer.seal(text).token.rstrip("=")
        seconds = math.ceil((session.until - datetime.now(UTC)).total_seconds())
        response.set_cookie(
            NAME, token, max_age=seconds, path="/", httponly=True, samesite="Strict", secure=self._is_secure(request)
        )

    def take(self, request: web.Request, response: web.Response) -> None:
        """Make the browser forget its session."""
        response.del_cookie(NAME, path="/", httponly=True, samesite="Strict", secure=self._is_secure(request))

    def may_act(self, request: web.Request) -> bool:
        """Whether a cookie is enough here: reading always, anything else only from a page of our own."""
        if request.headers.get(hdrs.UPGRADE):
            return self._is_ours(request)
        if request.method in _READS:
            return True
        site = request.headers.get("Sec-Fetch-Site")
        return site == "same-origin" if site else request.headers.get(OWN_HEADER) == "1"

    def _is_ours(self, request: web.Request) -> bool:
        """Whether the page that opens a socket is ours: SameSite alone would let sisters of our domain listen."""
        origin = urlsplit(request.headers.get(hdrs.ORIGIN, "")).netloc
        return origin in {request.host, urlsplit(self._base).netloc or request.host}

    def _is_secure(self, request: web.Request) -> bool:
        # Who forges the proxy's header does it to a cookie of their own.
        proxy = request.headers.get(hdrs.X_FORWARDED_PROTO, "")
        return "https" in {request.scheme, proxy, urlsplit(self._base).scheme}
