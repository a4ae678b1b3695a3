"""What a process frees goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import concurrent.futures, os, sys
import psutil
from infra import memory

if sys.argv[1] == "limited":
    memory.configure()

def work(number):
    # Large blocks that are freed once make glibc keep such blocks; small ones behind them then hold them there.
    kept = []
    for _ in range(20):
        block = bytearray(b"x") * 4_000_000
        kept.append([bytes(50_000) for _ in range(8)])
        del block
    return kept[-1][0][:1]

with concurrent.futures.ThreadPoolExecutor(16) as pool:
    list(pool.map(work, range(64)))
if sys.argv[1] == "limited":
    memory.release()
print(psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these heaps")
def test_what_threads_free_goes_back() -> None:
    """A process whose heaps are limited ends with less than one that is left alone, after the same work."""
    left_alone, limited = (_memory_after(how) for how in ("alone", "limited"))
    assert limited < left_alone
    assert limited < 100_000_000


def _memory_after(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], check=True, capture_output=True, text=True)
    return int(done.stdout)
