"""The API reference: the OpenAPI document, and a page that shows it without a CDN."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from api.http.routes import Access, Call, Routes

FOLDER = Path(__file__).parent
DOCUMENT = web.AppKey("document", bytes)
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

routes = Routes("docs", "The API reference.")


@routes.get("/openapi.json", access=Access.PUBLIC, media_type="application/json")
async def document(call: Call) -> web.Response:
    """Read the OpenAPI 3.1 document."""
    return web.Response(body=call.request.app[DOCUMENT], content_type="application/json")


@routes.get("/docs", access=Access.PUBLIC, media_type="text/html")
async def page(_call: Call) -> web.Response:
    """Open this reference in a browser."""
    return _build_response("index.html")


@routes.get("/docs/docs.js", access=Access.PUBLIC, media_type="text/javascript")
async def script(_call: Call) -> web.Response:
    """Read the script of the page."""
    return _build_response("docs.js")


@routes.get("/docs/docs.css", access=Access.PUBLIC, media_type="text/css")
async def style(_call: Call) -> web.Response:
    """Read the style of the page."""
    return _build_response("docs.css")


def _build_response(name: str) -> web.Response:
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return web.Response(body=_CONTENT[name], content_type=media_type, charset="utf-8", headers=headers)


_CONTENT = {name: (FOLDER / name).read_bytes() for name in ("index.html", "docs.js", "docs.css")}
