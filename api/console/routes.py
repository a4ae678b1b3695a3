"""The routes of the console: the index page at every address below /console, and its files."""

from __future__ import annotations

import re
from http import HTTPStatus

from aiohttp import web
from pydantic import Field

from api.console import assets
from api.console.assets import ConsoleFile
from api.http.models import ForeignRequest, Request
from api.http.routes import Access, Call, Routes
from domain.faults import Missing

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ACCEPTS_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
CACHE_FOREVER = "public, max-age=31536000, immutable"
CACHE_REVALIDATE = "no-cache"

routes = Routes("console", "The pages of every system in a browser; they call this API and nothing else.")


class PageState(ForeignRequest):
    """The query of a page of the console, which only the page's script reads."""


class PagePath(Request):
    """The path of a page; the index page's script knows which there are."""

    page: str = Field(max_length=1_000)


class AssetPath(Request):
    """A file of a version of the console."""

    version: str = Field(pattern=r"^[0-9a-f]{16}$")
    file: str = Field(max_length=200)


@routes.get("/console", access=Access.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def overview(call: Call, query: PageState) -> web.Response:
    """Open the console."""
    return _build_response(call.request, assets.load_files().index, CACHE_REVALIDATE)


@routes.get("/console/", access=Access.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def root(call: Call, query: PageState) -> web.Response:
    """Open the console with a slash at the end."""
    return _build_response(call.request, assets.load_files().index, CACHE_REVALIDATE)


@routes.get(
    "/console/{page}", access=Access.PUBLIC, slashes="page", media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""}
)
async def page(call: Call, path: PagePath, query: PageState) -> web.Response:
    """Open the console at one of its pages."""
    return _build_response(call.request, assets.load_files().index, CACHE_REVALIDATE)


@routes.get(
    "/console/assets/{version}/{file}",
    access=Access.PUBLIC,
    slashes="file",
    media_type="text/javascript",
    also={HTTPStatus.NOT_MODIFIED: ""},
)
async def asset(call: Call, path: AssetPath) -> web.Response:
    """Read a file of the console.

    The version is a hash of all files, so a file never changes under its address.
    """
    files = assets.load_files()
    found = files.assets.get(path.file)
    if found is None:
        raise Missing("not_found", "The console has no such file.", "Open /console again: it names the files it needs.")
    # During an update another replica may serve another version: its files are answered, but not cached.
    return _build_response(call.request, found, CACHE_FOREVER if path.version == files.version else CACHE_REVALIDATE)


def _build_response(request: web.Request, file: ConsoleFile, caching: str) -> web.Response:
    headers = {
        "Cache-Control": caching,
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "ETag": f'W/"{file.etag}"',
        "Vary": "Accept-Encoding",
    }
    if any(known.value in {file.etag, "*"} for known in request.if_none_match or ()):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    body = file.plain
    if _ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "")):
        body, headers["Content-Encoding"] = file.compressed, "gzip"
    return web.Response(body=body, content_type=file.media_type, charset="utf-8", headers=headers)
