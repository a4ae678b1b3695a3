"""The clock of the lab moves the wall clock of a process, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.tools import build_clock
from tests.support.requirements import GCC

SCRIPT = """
import datetime, struct, sys, time
wall, steady = time.time(), time.monotonic()
with open(sys.argv[1], "r+b") as file:
    file.write(struct.pack("q", 60))
time.sleep(0.05)
print(60 <= time.time() - wall < 90, time.monotonic() - steady < 30, datetime.datetime.now().timestamp() - wall >= 60)
"""


def test_the_wall_clock_jumps_while_a_process_runs(tmp_path: Path) -> None:
    """Sleeps and the monotonic clock go on, so that no timer ends early."""
    GCC.require()
    library, offset = build_clock(tmp_path), tmp_path / "offset"
    offset.write_bytes(bytes(8))
    environment = {"PATH": os.defpath, "LD_PRELOAD": str(library), "LAB_CLOCK": str(offset)}

    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, offset], env=environment, capture_output=True, text=True, check=True
    )

    assert answer.stdout.split() == ["True", "True", "True"]
