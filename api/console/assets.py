"""The files of the console: read, compressed and named by their content once, when the first is asked for."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
    def base(self) -> str:
        """The path of this version's files; modules import each other relatively and so stay within it."""
        return f"{BASE}/{self.version}"


@cache
def load_files() -> ConsoleFiles:
    """Return the files; the version is a hash of all of them, so that a page never mixes two versions."""
    found = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
    contents = {name: content for name, content in found.items() if Path(name).suffix in MEDIA_TYPES}
    version = _digest(b"".join(_digest(content).encode() + name.encode() for name, content in contents.items()))
    index = (
        contents.pop(INDEX)
        .replace(PRELOAD_MARK, _build_preload_links(contents))
        .replace(BASE_MARK, f"{BASE}/{version}".encode())
    )
    return ConsoleFiles(
        version, _build_file(INDEX, index), {name: _build_file(name, content) for name, content in contents.items()}
    )


def _build_preload_links(names: Iterable[str]) -> bytes:
    """Return links that have the browser fetch all modules at once instead of one import after another."""
    first = [name for name in names if _PRELOADED.fullmatch(name) and name not in _CLASSIC_SCRIPTS]
    return "\n    ".join(f'<link rel="modulepreload" href="{{{{base}}}}/{name}">' for name in first).encode()


def _build_file(name: str, content: bytes) -> ConsoleFile:
    # Without a time stamp every replica compresses to the same bytes.
    compressed = gzip.compress(content, mtime=0)
    return ConsoleFile(content, compressed, _digest(content), MEDIA_TYPES[Path(name).suffix])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
