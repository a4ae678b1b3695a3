"""The console: its index page at every address below /console, and its files, compressed and named by their content."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from pydantic import Field

from api.http.models import LenientRequest, Request
from api.http.routes import Call, RouteAccess, Routes
from domain.faults import Missing

FOLDER = Path(__file__).parent
INDEX = "index.html"
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
BASE = "/console/assets"
BASE_MARK, PRELOAD_MARK = b"{{base}}", b"{{preload}}"
# What every page needs; the pages of a system are loaded when they are opened.
_PRELOADED = re.compile(r"js/(?:components/)?\w+\.js|js/words/common\.js")
_CLASSIC_SCRIPTS = {"js/early.js"}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """A file with its compressed copy and the hash of its content."""

    plain: bytes
    compressed: bytes
    etag: str
    media_type: str


@dataclass(frozen=True, slots=True)
class ConsoleFiles:
    """All files of one version of the console."""

    version: str
    index: ConsoleFile
    assets: Mapping[str, ConsoleFile]

    @property
    def versioned_path(self) -> str:
        """The path of this version's files; modules import each other relatively and so stay within it."""
        return f"{BASE}/{self.version}"


@cache
def load_console_files() -> ConsoleFiles:
    """Return the files; the version is a hash of all of them, so that a page never mixes two versions."""
    found = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
    contents = {name: content for name, content in found.items() if Path(name).suffix in MEDIA_TYPES}
    version = _hash_content(
        b"".join(_hash_content(content).encode() + name.encode() for name, content in contents.items())
    )
    index = (
        contents.pop(INDEX)
        .replace(PRELOAD_MARK, _build_preload_links(contents))
        .replace(BASE_MARK, f"{BASE}/{version}".encode())
    )
    return ConsoleFiles(
        version,
        _compress_file(INDEX, index),
        {name: _compress_file(name, content) for name, content in contents.items()},
    )


def _build_preload_links(names: Iterable[str]) -> bytes:
    """Return links that have the browser fetch all modules at once instead of one import after another."""
    first = [name for name in names if _PRELOADED.fullmatch(name) and name not in _CLASSIC_SCRIPTS]
    return "\n    ".join(f'<link rel="modulepreload" href="{{{{base}}}}/{name}">' for name in first).encode()


def _compress_file(name: str, content: bytes) -> ConsoleFile:
    # Without a time stamp every replica compresses to the same bytes.
    compressed = gzip.compress(content, mtime=0)
    return ConsoleFile(content, compressed, _hash_content(content), MEDIA_TYPES[Path(name).suffix])


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ACCEPTS_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
CACHE_FOREVER = "public, max-age=31536000, immutable"
CACHE_REVALIDATE = "no-cache"

routes = Routes("console", "The pages of every system in a browser; they call this API and nothing else.")


class IgnoredConsoleQuery(LenientRequest):
    """The query of a page of the console, which only the page's script reads."""


class PagePath(Request):
    """The path of a page; the index page's script knows which there are."""

    page: str = Field(max_length=1_000)


class AssetPath(Request):
    """A file of a version of the console."""

    version: str = Field(pattern=r"^[0-9a-f]{16}$")
    file: str = Field(max_length=200)


@routes.get("/", access=RouteAccess.PUBLIC, status=HTTPStatus.FOUND)
async def redirect_to_console(_call: Call) -> web.Response:
    """Lead to the console, for those who know only the address of the API."""
    return web.Response(status=HTTPStatus.FOUND, headers={"Location": "/console"})


@routes.get("/console", access=RouteAccess.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def open_console(call: Call, query: IgnoredConsoleQuery) -> web.Response:
    """Open the console."""
    return _build_file_response(call.request, load_console_files().index, CACHE_REVALIDATE)


@routes.get("/console/", access=RouteAccess.PUBLIC, media_type="text/html", also={HTTPStatus.NOT_MODIFIED: ""})
async def open_console_with_slash(call: Call, query: IgnoredConsoleQuery) -> web.Response:
    """Open the console with a slash at the end."""
    return _build_file_response(call.request, load_console_files().index, CACHE_REVALIDATE)


@routes.get(
    "/console/{page}",
    access=RouteAccess.PUBLIC,
    slashes="page",
    media_type="text/html",
    also={HTTPStatus.NOT_MODIFIED: ""},
)
async def open_console_page(call: Call, path: PagePath, query: IgnoredConsoleQuery) -> web.Response:
    """Open the console at one of its pages."""
    return _build_file_response(call.request, load_console_files().index, CACHE_REVALIDATE)


@routes.get(
    "/console/assets/{version}/{file}",
    access=RouteAccess.PUBLIC,
    slashes="file",
    media_type="text/javascript",
    also={HTTPStatus.NOT_MODIFIED: ""},
)
async def read_asset(call: Call, path: AssetPath) -> web.Response:
    """Read a file of the console.

    The version is a hash of all files, so a file never changes under its address.
    """
    files = load_console_files()
    found = files.assets.get(path.file)
    if found is None:
        raise Missing("not_found", "The console has no such file.", "Open /console again: it names the files it needs.")
    # During an update another replica may serve another version: its files are answered, but not cached.
    return _build_file_response(
        call.request, found, CACHE_FOREVER if path.version == files.version else CACHE_REVALIDATE
    )


def _build_file_response(request: web.Request, file: ConsoleFile, cache_control: str) -> web.Response:
    headers = {
        "Cache-Control": cache_control,
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
