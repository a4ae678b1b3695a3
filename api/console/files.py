"""The console's files as they go over the wire: read, named by their content and pressed once, when the door opens."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
SHELL = "index.html"
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
BASE = "/console/assets"
BASE_MARK, PRELOAD_MARK = b"{{base}}", b"{{preload}}"
# What every page needs; rooms are loaded when somebody goes there.
FIRST = re.compile(r"js/(?:components/)?\w+\.js|js/words/common\.js")
NOT_MODULES = {"js/early.js"}


@dataclass(frozen=True, slots=True)
class File:
    """One file: plain, pressed, and the name that its content has."""

    plain: bytes
    pressed: bytes
    etag: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Files:
    """All files of one version."""

    version: str
    shell: File
    assets: Mapping[str, File]

    @property
    def base(self) -> str:
        """Where the assets of this version are; modules import each other relatively and so stay within it."""
        return f"{BASE}/{self.version}"


@cache
def load() -> Files:
    """The files of this process. One hash over all of them names the version, so that no two versions ever mix."""
    found = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
    contents = {name: content for name, content in found.items() if Path(name).suffix in MEDIA_TYPES}
    version = _digest(b"".join(_digest(content).encode() + name.encode() for name, content in contents.items()))
    shell = (
        contents.pop(SHELL).replace(PRELOAD_MARK, _preload(contents)).replace(BASE_MARK, f"{BASE}/{version}".encode())
    )
    return Files(version, _file(SHELL, shell), {name: _file(name, content) for name, content in contents.items()})


def _preload(names: Iterable[str]) -> bytes:
    """Modules are found by reading modules; named at once they all come at once."""
    first = [name for name in names if FIRST.fullmatch(name) and name not in NOT_MODULES]
    return "\n    ".join(f'<link rel="modulepreload" href="{{{{base}}}}/{name}">' for name in first).encode()


def _file(name: str, content: bytes) -> File:
    # The time is left out, so that every replica presses to the same bytes.
    pressed = gzip.compress(content, mtime=0)
    return File(content, pressed, _digest(content), MEDIA_TYPES[Path(name).suffix])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
