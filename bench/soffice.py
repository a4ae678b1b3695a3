"""LibreOffice without a window: reads workbooks as another program does."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

MISSING = "LibreOffice is not installed: `apt-get install libreoffice-calc-nogui` brings soffice."
TIMEOUT_SECONDS = 300
# Commas, double quotes, UTF-8, from the first line; cells by value, not as they are shown.
CSV = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false"
CSV_OF_EACH_SHEET = f"{CSV},false,false,-1"
PDF = "pdf"


class ConversionFailed(Exception):
    """LibreOffice did not convert a file."""


def is_installed() -> bool:
    """Return whether LibreOffice is installed."""
    return shutil.which("soffice") is not None


def convert(books: Sequence[Path], to: str, folder: Path) -> list[Path]:
    """Convert workbooks into files of another type in a new folder, with a profile of its own."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as home:
        command = ["soffice", f"-env:UserInstallation={Path(home).as_uri()}", "--headless", "--convert-to", to]
        command += ["--outdir", str(folder), *map(str, books)]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    made = sorted(folder.iterdir())
    if done.returncode or len(made) < len(books):
        raise ConversionFailed((done.stderr or done.stdout).decode(errors="replace")[-2_000:])
    return made
