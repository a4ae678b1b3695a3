"""HTTP requests to the API, with retries; failures become errors that say why."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from haulage.errors import ApiUnreachable, InvalidBaseUrl, RequestRefused

RETRY_STATUSES = frozenset({429, 502, 503, 504})
SYSTEM_PAUSED = "system_paused"
NO_HAULAGE_API = "no_haulage_api"
"""The code of a response that is not one of Haulage: that of a proxy, or of another server."""
SLOW_ANSWER_SECONDS = 5.0
"""After this time without an answer it is logged that a request waits for one."""
NO_ANSWER_LOGGED_SECONDS = 3.0
"""After this time without a connection it is logged that the request is tried again; a restart is shorter."""
REQUEST_ID_HEADER = "X-Request-Id"
"""Every response of Haulage has it, also one without a body; a proxy's own has not."""
LOGGED_AGAIN_SECONDS = 60.0
"""How often at most the same reason for waiting is logged."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
_log = logging.getLogger(__name__)
TIMEOUT = aiohttp.ClientTimeout(total=90, sock_connect=10)


class RetryingApiTransport:
    """HTTP session with one API. A request is repeated while it is not answered, unless its caller says otherwise.

    Raises:
        InvalidBaseUrl: The base URL is not an HTTP address.
    """

    def __init__(self, base_url: str, key: str, patience_seconds: float) -> None:
        _require_http_base_url(base_url)
        self.base_url = base_url.rstrip("/")
        self.patience_seconds = patience_seconds
        self._headers = {"Authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None
        self._waits_logged_at: dict[str, float] = {}
        self._is_deprecation_logged = False

    async def open(self) -> None:
        """Open the session."""
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=TIMEOUT)

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    async def request_json(
        self, method: str, path: str, *, is_repeatable: bool = True, **options: Any
    ) -> dict[str, Any]:
        """Send a request and return the body of a successful response.

        Args:
            is_repeatable: Whether the request has no further effect when it is repeated; others are repeated only where
                they cannot have begun.

        Raises:
            RequestRefused: The API refused the request.
            ApiUnreachable: It did not answer within `patience_seconds`.
        """
        response = await self._send(method, path, options, is_repeatable=is_repeatable)
        if response.status >= 400 or response.body is None:
            raise _build_refused_error(response, f"{method} {self.base_url}{path}")
        return response.body

    async def request_redirect_location(self, path: str) -> str:
        """Return the target of a redirect; raises what `request_json` does."""
        response = await self._send("GET", path, {})
        if response.status >= 400 or "Location" not in response.headers:
            raise _build_refused_error(response, f"GET {self.base_url}{path}")
        return response.headers["Location"]

    async def request_any(self, method: str, path: str, **options: Any) -> ApiResponse:
        """Return a successful response, whatever its form; raises what `request_json` does."""
        response = await self._send(method, path, options)
        if response.status >= 400 or REQUEST_ID_HEADER not in response.headers:
            raise _build_refused_error(response, f"{method} {self.base_url}{path}")
        return response

    async def _send(
        self, method: str, path: str, options: dict[str, Any], *, is_repeatable: bool = True
    ) -> ApiResponse:
        """Retry until the server is not overloaded or the time is up; return the last response."""
        began = time.monotonic()
        deadline = began + self.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            response = await self._send_once(method, path, options)
            if isinstance(response, ApiResponse) and response.status not in RETRY_STATUSES:
                return response
            if not is_repeatable and not _is_of_request_not_begun(response):
                doubt = f"{method} {path} may have been carried out: look before you repeat it."
                if isinstance(response, ApiResponse):
                    refused = _build_refused_error(response, f"{method} {self.base_url}{path}")
                    raise RequestRefused(refused.status, refused.code, f"{refused} {doubt}", refused.request_id)
                raise ApiUnreachable(
                    f"{self.base_url} did not answer: {describe_error(response)}. {doubt}"
                ) from response
            wait = max(pause, response.retry_after_seconds) if isinstance(response, ApiResponse) else pause
            if time.monotonic() + wait > deadline:
                if isinstance(response, ApiResponse):
                    return response
                raise ApiUnreachable(f"{self.base_url} does not answer: {describe_error(response)}.") from response
            if isinstance(response, ApiResponse) and response.detail:
                self.log_wait(response.detail)
            elif isinstance(response, Exception) and time.monotonic() - began >= NO_ANSWER_LOGGED_SECONDS:
                self.log_wait(f"{self.base_url} does not answer ({describe_error(response)}).")
            await asyncio.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def log_wait(self, reason: str) -> None:
        """Log why a request is repeated; the same reason at most once a minute."""
        now = time.monotonic()
        self._waits_logged_at = {
            each: at for each, at in self._waits_logged_at.items() if now - at < LOGGED_AGAIN_SECONDS
        }
        if reason not in self._waits_logged_at:
            self._waits_logged_at[reason] = now
            _log.warning("request_waits: for up to %.0f s: %s", self.patience_seconds, reason)

    def _log_slow_answer(self, method: str, path: str) -> None:
        _log.warning(
            "request_waits: %s %s%s is not answered after %.0f s; a component or a worker that it needs may be away",
            *(method, self.base_url, path, SLOW_ANSWER_SECONDS),
        )

    async def _send_once(self, method: str, path: str, options: dict[str, Any]) -> ApiResponse | Exception:
        if self._session is None:
            raise RuntimeError("A Client is opened with `async with`.")
        url = self.base_url + path
        # Some requests wait on purpose.
        wanted_wait = float((options.get("json") or options.get("params") or {}).get("wait") or 0)
        slow = asyncio.get_running_loop().call_later(
            SLOW_ANSWER_SECONDS + wanted_wait, self._log_slow_answer, method, path
        )
        try:
            async with self._session.request(method, url, allow_redirects=False, **options) as response:
                if "Deprecation" in response.headers and not self._is_deprecation_logged:
                    self._is_deprecation_logged = True
                    _log.warning(
                        "request_deprecated: %s %s may fail after %s; update the client",
                        *(method, url, response.headers.get("Sunset")),
                    )
                return ApiResponse(response.status, response.headers, await response.read())
        except aiohttp.ClientResponseError:
            return ConnectionError("what answers there speaks no HTTP")
        except (aiohttp.ClientError, TimeoutError) as error:
            return error
        finally:
            slow.cancel()


@dataclass(frozen=True)
class ApiResponse:
    """A response of the API."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @cached_property
    def body(self) -> dict[str, Any] | None:
        """The JSON object that it holds; None if it holds something else."""
        return _parse_object_or_none(self.content)

    @property
    def detail(self) -> str:
        """Why the API refused the request; empty where something else answered. Routes of tasks say it as flowSvr."""
        body = self.body or {}
        return str(body.get("detail") or body.get("msg", "")).removeprefix("FAIL_REASON::")

    @property
    def retry_after_seconds(self) -> float:
        value = self.headers.get("Retry-After", "")
        return float(value) if value.isascii() and value.isdigit() else 0.0


def _is_of_request_not_begun(response: ApiResponse | Exception) -> bool:
    """Whether the API refused a request before its beginning, or could not be connected to."""
    if isinstance(response, ApiResponse):
        is_paused = response.body is not None and response.body.get("code") == SYSTEM_PAUSED
        return is_paused or response.status == HTTPStatus.TOO_MANY_REQUESTS
    return isinstance(response, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def encode_path_step(text: str) -> str:
    """Return an id as a step of a path: with `#` or `?` in it, the request would be about another object."""
    return quote(text, safe="")


def describe_error(error: Exception) -> str:
    """Describe why a connection failed."""
    match error:
        case aiohttp.ClientConnectorError(os_error=socket.gaierror()):
            return "its name is not known"
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))):
            return os.strerror(number).lower()
        case aiohttp.ClientConnectorError():
            return "no connection could be made"
        case TimeoutError():
            return "it took too long"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | aiohttp.ClientOSError():
            return "the connection broke off"
        case aiohttp.ClientResponseError(status=status):
            return f"it answered {status}"
        case _:
            return str(error) or type(error).__name__


def _require_http_base_url(base_url: str) -> None:
    try:
        url = URL(base_url)
        is_usable = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidBaseUrl(f"“{base_url}” is no address of an API. Give one like https://haulage.example.com.")


def _parse_object_or_none(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _build_refused_error(response: ApiResponse, request: str) -> RequestRefused:
    if response.body is not None and "detail" not in response.body and response.detail:
        return RequestRefused(response.status, str(response.body.get("code", "")), response.detail, "")
    # Other servers answer with a `detail`, too.
    if response.body is None or not isinstance(response.body.get("detail"), str) or "code" not in response.body:
        return RequestRefused(
            response.status, NO_HAULAGE_API, f"{request} answered {response.status}, not as Haulage does.", ""
        )
    problem = response.body
    # What it counts follows.
    detail = re.sub(r" [\d,]+ more under `errors`\.", "", problem["detail"])
    # The detail names the first of them already, with its path or as the whole sentence.
    faults = [
        f"{each['path']}: {each['message']}"
        for each in problem.get("errors", [])
        if not detail.startswith(each["message"])
    ]
    wrong = "; ".join(fault for fault in faults if fault not in detail)
    return RequestRefused(response.status, problem["code"], f"{detail} {wrong}".strip(), problem.get("request_id", ""))
