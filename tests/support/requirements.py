"""Programs that some tests need and that pip does not install: the run says what could not be tested without them."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import pytest


@dataclass(frozen=True)
class Program:
    """A program, and how to get it."""

    name: str
    commands: tuple[str, ...]
    """Any of them will do."""
    packages: str
    """Debian's names."""
    tests: str
    otherwise: str = ""
    """What to do where no package brings it."""

    @property
    def mark(self) -> str:
        """What a skipped test says, so that the summary can name the program it missed."""
        return f"{self.name} is not installed"

    def find(self) -> str | None:
        """Return the path of the program, or None."""
        return next((path for command in self.commands if (path := shutil.which(command))), None)

    def require(self) -> str:
        """Return the path of the program; without it the test is skipped, or fails in CI, which installs it."""
        return self.find() or self.miss()

    def miss(self, why: str = "") -> NoReturn:
        """Skip the test, or fail it in CI.

        Args:
            why: What hinders, where the program is there and of no use.
        """
        if os.environ.get("CI"):
            pytest.fail(f"{why or self.mark}, and CI installs what tests need: see .ci/run", pytrace=False)
        pytest.skip(why or self.mark)


LIBREOFFICE = Program(
    "LibreOffice",
    ("soffice",),
    "libreoffice-calc-nogui fonts-wqy-zenhei poppler-utils",
    "Excel books as an office opens them",
)
CHROMIUM = Program(
    "Chromium", ("chromium-headless-shell", "chromium"), "chromium-headless-shell fonts-wqy-zenhei", "the console"
)
MARIADB = Program("MariaDB", ("mariadbd",), "mariadb-server", "the module library on MySQL")
NPM = Program("npm", ("npm",), "npm", "the console's accessibility")
GO = Program("Go", ("go",), "golang-go", "flowSvr's own SDK, the schema of Compose, and the workflows of CI")
GCC = Program("gcc", ("gcc",), "gcc libc6-dev", "the clock of the lab")
REDIS = Program("Redis", ("redis-server", "valkey-server"), "redis-server", "flowSvr's own SDK")
SDK = Program("flowSvr's SDK", (), "", "flowSvr's own SDK", "set COMPAT_SDK to a checkout of it")
POSTGRES = Program(
    "PostgreSQL with TLS",
    ("postgres", *sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))),  # noqa: PTH207
    "postgresql",
    "TLS to PostgreSQL",
)
PROMTOOL = Program("Prometheus", ("promtool",), "prometheus", "the alerts' rules")
PROGRAMS = (LIBREOFFICE, CHROMIUM, MARIADB, NPM, GO, GCC, REDIS, SDK, POSTGRES, PROMTOOL)


def list_missing(reasons: Iterable[str]) -> dict[Program, int]:
    """Count, by program, the tests that were skipped for want of it."""
    texts = list(reasons)
    counts = {program: sum(program.mark in text for text in texts) for program in PROGRAMS}
    return {program: count for program, count in counts.items() if count}


def explain(missing: dict[Program, int]) -> str:
    """Say in one line what was not tested, and how to get what it takes."""
    parts = [f"{count} tests of {program.tests} ({program.name})" for program, count in missing.items()]
    packages = " ".join(dict.fromkeys(name for program in missing for name in program.packages.split()))
    ways = [f"apt-get install --no-install-recommends {packages}"] if packages else []
    ways += [program.otherwise for program in missing if program.otherwise]
    return f"Not tested here: {', '.join(parts)}. To test them: {'; '.join(ways)}"
