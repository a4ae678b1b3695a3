"""The disks of the hosts behind a stand-in GSE: every target's file, with the bytes that it was sent."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from sims.gse.tasks import Spot


class Disks:
    """Files below one folder.

    Args:
        folder: Targets get theirs as `<folder>/<agent>/<folder>/<file>`.
        links: Let targets share one file by hard links: the same bytes, fifty thousand times as cheap.
    """

    def __init__(self, folder: Path, *, links: bool) -> None:
        self._folder = folder
        self._links = links
        self._copies: dict[tuple[object, ...], Path] = {}

    def path(self, spot: Spot) -> Path:
        """Where a file lies."""
        return self._folder / spot.path

    def copy(self, source: Path) -> tuple[Path, int]:
        """A copy of a source's file as it is now, and its size; of one that does not change there is one copy."""
        status = source.stat()
        key = (source, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._copies:
            copied = self._folder / ".sent" / f"{len(self._copies)}"
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)
            self._copies[key] = copied
        return self._copies[key], status.st_size

    def write(self, copied: Path, spot: Spot, *, spoiled: bool = False) -> None:
        """Deliver it, or other bytes."""
        path = self.path(spot)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if spoiled:
            path.write_bytes(b"spoiled" + copied.read_bytes()[7:])
            return
        if not (self._links and _linked(copied, path)):
            shutil.copyfile(copied, path)


def _linked(copied: Path, path: Path) -> bool:
    try:
        os.link(copied, path)
    except OSError as error:
        if error.errno == errno.EMLINK:
            return False
        raise
    return True
