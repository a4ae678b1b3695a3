"""What a worker loads for a page of CSV: no data frames."""

from __future__ import annotations

import subprocess
import sys

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
