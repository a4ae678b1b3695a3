"""The console's room: the shell at every address below /console, and the files that it is made of."""

from __future__ import annotations

import re
from http import HTTPStatus

from aiohttp import web
from pydantic import Field

from api.console import files
from api.console.files import File
from api.http.models import ForeignRequest, Request
from api.http.routes import Access, Call, Routes
from domain.faults import Missing

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TAKES_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"

routes = Routes("console", "Every room in a browser; it calls this API and nothing else.")


class View(ForeignRequest):
    """What a page of the console keeps in its address: the page reads it, not we."""


class PagePath(Request):
    """Names a page; the shell knows which there are."""

    page: str = Field(max_length=1_000)


class AssetPath(Request):
    """Names a file of a version of the console."""

    version: str = Field(pattern=r"^[0-9a-f]{16}$")
    file: str = Field(max_length=200)


@routes.get("/console", access=Access.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def overview(call: Call, query: View) -> web.Response:
    """Open the console."""
    return _answer(call.request, files.load().shell, ASK_AGAIN)


@routes.get("/console/", access=Access.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def front(call: Call, query: View) -> web.Response:
    """Open the console by its other name."""
    return _answer(call.request, files.load().shell, ASK_AGAIN)


@routes.get(
    "/console/{page}", access=Access.PUBLIC, slashes="page", media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""}
)
async def page(call: Call, path: PagePath, query: View) -> web.Response:
    """Open the console at one of its pages."""
    return _answer(call.request, files.load().shell, ASK_AGAIN)


@routes.get(
    "/console/assets/{version}/{file}",
    access=Access.PUBLIC,
    slashes="file",
    media_type="text/javascript",
    also={HTTPStatus.NOT_MODIFIED: ""},
)
async def asset(call: Call, path: AssetPath) -> web.Response:
    """Read a file of the console.

    The version is a hash over all files: what has been read under it stays true for ever.
    """
    here = files.load()
    found = here.assets.get(path.file)
    if found is None:
        raise Missing("not_found", "The console has no such file.", "Open /console again: it names the files it needs.")
    # Another replica may be older or newer for a moment: its files are answered, but not kept.
    return _answer(call.request, found, FOR_EVER if path.version == here.version else ASK_AGAIN)


def _answer(request: web.Request, file: File, caching: str) -> web.Response:
    headers = {
        "Cache-Control": caching,
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "ETag": f'W/"{file.etag}"',
        "Vary": "Accept-Encoding",
    }
    if any(known.value in {file.etag, "*"} for known in request.if_none_match or ()):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    body = file.plain
    if TAKES_GZIP.search(request.headers.get("Accept-Encoding", "")):
        body, headers["Content-Encoding"] = file.pressed, "gzip"
    return web.Response(body=body, content_type=file.media_type, charset="utf-8", headers=headers)
