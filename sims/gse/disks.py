"""The disks of the hosts of a stand-in GSE, with the files that targets received."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from sims.gse.tasks import FileSpot


class HostDisks:
    """Files below one folder.

    Args:
        folder: Each target has its file at `<folder>/<agent>/<folder>/<file>`.
        links: Let targets share one file by hard links, which is much cheaper for fifty thousand targets.
    """

    def __init__(self, folder: Path, *, links: bool) -> None:
        self._folder = folder
        self._links = links
        self._copies: dict[tuple[object, ...], Path] = {}

    def path(self, spot: FileSpot) -> Path:
        """Return the path of a file."""
        return self._folder / spot.path

    def copy(self, source: Path) -> tuple[Path, int]:
        """Return a copy of a source's file, and its size; an unchanged file is copied once."""
        status = source.stat()
        key = (source, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._copies:
            copied = self._folder / ".sent" / f"{len(self._copies)}"
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)
            self._copies[key] = copied
        return self._copies[key], status.st_size

    def write(self, copied: Path, spot: FileSpot, *, spoiled: bool = False) -> None:
        """Write the file of a target, or other bytes if spoiled."""
        path = self.path(spot)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if spoiled:
            path.write_bytes(b"spoiled" + copied.read_bytes()[7:])
            return
        if not (self._links and _try_link(copied, path)):
            shutil.copyfile(copied, path)


def _try_link(copied: Path, path: Path) -> bool:
    try:
        os.link(copied, path)
    except OSError as error:
        if error.errno == errno.EMLINK:
            return False
        raise
    return True
