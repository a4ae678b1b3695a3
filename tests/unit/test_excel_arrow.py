"""PyArrow without pandas, which costs each process 44 MB."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITE_A_BOOK = """
import sys
from excel.arrow import pa
from excel.workbook import render_tables

orders = pa.table({"id": [1, None, 2.5], "name": ["a", None, "<b>"], "paid": [True, None, False]})
book = render_tables({"orders": orders})
assert len(book) > 1_000
assert "pandas" not in sys.modules, "pandas was imported"

import pandas
assert pandas.DataFrame({"id": [1, 2]})["id"].sum() == 3
assert pa.array([1, 2]).to_pylist() == [1, 2]
"""
OWN_IMPORT = re.compile(r"^\s*import pyarrow as pa\b", re.MULTILINE)


def test_a_book_is_written_without_pandas() -> None:
    """And a report that imports pandas afterwards has all of it."""
    subprocess.run([sys.executable, "-c", WRITE_A_BOOK], cwd=ROOT, check=True)


def test_what_makes_columns_imports_pyarrow_from_there() -> None:
    """A module that has it of its own may be the first of its process, and pandas is imported."""
    folders = (
        "api",
        "activities",
        "services",
        "stores",
        "clients",
        "infra",
        "domain",
        "excel",
        "workflows",
        "cli",
        "dev",
    )
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert [str(file) for file in files if OWN_IMPORT.search(file.read_text())] == [str(ROOT / "excel" / "arrow.py")]
