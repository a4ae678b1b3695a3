"""What modules of API and workflows load when they are imported: no heavy library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.selecting import mark_long_except

HEAVY = ("numpy", "pandas", "pyarrow", "xlsxwriter")


@pytest.mark.parametrize(
    "module", mark_long_except(["api.app", "workflows.downloads.download", "cli.serving"], ["api.app"])
)
def test_api_and_workers_load_no_heavy_library(module: str) -> None:
    """Processes that start, or idle, never pay for data frames and arrays; workers load them for the first page."""
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {set(HEAVY)!r}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


_STAGING = r"""
import sys
from domain.downloads.shape import PageEncoder, TableShape
from domain.downloads.models import TextEncoding
from domain.downloads.sinks.csv import CsvSink

encoder = PageEncoder(TableShape(columns=["a"]), CsvSink(TextEncoding.UTF_8, True))
page = encoder.encode(b'{"data":[{"a":"\u003d\xc3\xa9"}]}')
print(page.rows, "pandas" in sys.modules)
"""


def test_staging_csv_loads_no_pandas() -> None:
    """Arrow loads it by the way, at 40 MB a worker, where it is asked to convert."""
    done = subprocess.run([sys.executable, "-c", _STAGING], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "1 False"
