"""The workbook engine stands alone, as its README says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from python_calamine import load_workbook

ROOT = Path(__file__).parents[2]
LAYERS = ("api", "activities", "clients", "domain", "infra", "services", "stores", "workflows")


def run_python(code: str, folder: Path) -> str:
    """What the code prints, run in a folder where the engine is and nothing else of ours."""
    shutil.copytree(ROOT / "excel", folder / "excel", ignore=shutil.ignore_patterns("__pycache__"))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_example_makes_a_book(tmp_path: Path) -> None:
    """It loads no other layer."""
    page = (ROOT / "excel" / "README.md").read_text()
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    loaded = f"import sys\nprint(sorted({{name.partition('.')[0] for name in sys.modules}} & set({LAYERS!r})))"

    assert run_python(f"{example}\n{loaded}", tmp_path) == "[]"

    rows = load_workbook(tmp_path / "orders.xlsx").get_sheet_by_index(0).to_python()
    assert [[str(cell) for cell in row] for row in rows][-2:] == [["1", "Köln"], ["2", "Bonn"]]


def test_templates_load_neither_arrow_nor_xlsxwriter(tmp_path: Path) -> None:
    """Who only checks a template does not pay for rendering."""
    code = (
        "import sys, excel.template.checking, excel.template.samples\nprint({'pyarrow', 'xlsxwriter'} & {*sys.modules})"
    )

    assert run_python(code, tmp_path) == "set()"


SPOOLED = """
import os, random, sys
from pathlib import Path
import pyarrow as pa
from excel.book import Book
from excel.template.drawing import Drawing, TableDrawing

spool, table = Path.cwd() / "spool", TableDrawing()
spool.mkdir()
book = Book(Drawing(tables=[table]), time_zone="UTC", folder=str(spool))
rows = book.begin_table(table, ["a"])
for _ in range(20):
    rows.add(pa.RecordBatch.from_pydict({"a": [random.randbytes(400).hex() for _ in range(2_000)]}))
opened = [each for each in Path("/proc/self/fd").iterdir() if str(spool) in os.path.realpath(each)]
print(sum(each.stat().st_size for each in opened) > 4 * 1024 * 1024)
book.finish(lambda data: None)
"""


def test_packed_rows_wait_in_the_folder_that_was_named(tmp_path: Path) -> None:
    """Memory holds a few megabytes of them; what is beyond lies in a file there."""
    assert run_python(SPOOLED, tmp_path) == "True"
