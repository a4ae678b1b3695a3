"""The API reference: the OpenAPI document, and a page that shows it without a CDN."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from api.http import openapi
from api.http.routes import Call, RouteAccess, Routes

FOLDER = Path(__file__).parent
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

routes = Routes("docs", "The API reference.")


class LazilyEncodedOpenApiDocument:
    """The OpenAPI document of some routes, encoded when it is first asked for: no start waits for it."""

    def __init__(self, groups: Sequence[Routes]) -> None:
        self._groups = groups
        self._encoding: asyncio.Task[bytes] | None = None

    async def read(self) -> bytes:
        """Return the encoded document."""
        if self._encoding is None:
            self._encoding = asyncio.create_task(asyncio.to_thread(openapi.encode_openapi_document, self._groups))
        # A caller who goes away must not cancel what others wait for.
        return await asyncio.shield(self._encoding)


DOCUMENT = web.AppKey("document", LazilyEncodedOpenApiDocument)


@routes.get("/openapi.json", access=RouteAccess.PUBLIC, media_type="application/json")
async def read_document(call: Call) -> web.Response:
    """Read the OpenAPI 3.1 document."""
    return web.Response(body=await call.request.app[DOCUMENT].read(), content_type="application/json")


@routes.get("/docs", access=RouteAccess.PUBLIC, media_type="text/html")
async def open_page(_call: Call) -> web.Response:
    """Open this reference in a browser."""
    return _build_file_response("index.html")


@routes.get("/docs/", access=RouteAccess.PUBLIC, status=HTTPStatus.FOUND)
async def redirect_to_page(_call: Call) -> web.Response:
    """Lead to this reference from its address with a slash at the end."""
    return web.Response(status=HTTPStatus.FOUND, headers={"Location": "/docs"})


@routes.get("/docs/docs.js", access=RouteAccess.PUBLIC, media_type="text/javascript")
async def read_script(_call: Call) -> web.Response:
    """Read the script of the page."""
    return _build_file_response("docs.js")


@routes.get("/docs/docs.css", access=RouteAccess.PUBLIC, media_type="text/css")
async def read_style(_call: Call) -> web.Response:
    """Read the style of the page."""
    return _build_file_response("docs.css")


def _build_file_response(name: str) -> web.Response:
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return web.Response(body=_CONTENT[name], content_type=media_type, charset="utf-8", headers=headers)


_CONTENT = {name: (FOLDER / name).read_bytes() for name in ("index.html", "docs.js", "docs.css")}
