"""The workbook engine depends on nothing else of the server, as its README says."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from python_calamine import load_workbook

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "excel" / "README.md").read_text()


def with_requirements(names: Iterable[str]) -> set[str]:
    """Distributions, and what these require in turn."""
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            # Extras are not asked for; a name ends where its version begins.
            required = (each for each in distribution(name).requires or () if "extra ==" not in each)
            left += [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in required]
    return found


def installed_files(name: str) -> Iterator[Path]:
    """The files and folders of a distribution at the top of where it is installed."""
    listed = distribution(name)
    for top in {path.parts[0] for path in listed.files or () if path.parts[0] != ".."}:
        yield Path(str(listed.locate_file(top)))


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python in an environment that has the engine, and of all else only what its README names as needed."""
    [needed] = re.findall(r"it needs (.*?)\.\s", PAGE, re.DOTALL)
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in with_requirements(re.findall(r"`(\w+)`", needed)):
        for path in installed_files(name):
            (packages / path.name).symlink_to(path)
    shutil.copytree(ROOT / "excel", packages / "excel", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin" / "python"


def run_python(interpreter: Path, code: str, folder: Path) -> str:
    """What the code prints, run in a folder."""
    command = [str(interpreter), "-c", code]
    return subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, check=True).stdout.strip()


def test_the_environment_is_clean(interpreter: Path, tmp_path: Path) -> None:
    """What this server needs beside the engine is not there."""
    code = "import importlib.util\nprint(*map(importlib.util.find_spec, ['excel', 'domain', 'aiohttp', 'pandas']))"

    assert run_python(interpreter, code, tmp_path).split()[-3:] == ["None"] * 3


def test_the_example_makes_a_book(interpreter: Path, tmp_path: Path) -> None:
    """It needs nothing but what the README names."""
    [example] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    run_python(interpreter, example, tmp_path)

    rows = load_workbook(tmp_path / "orders.xlsx").get_sheet_by_index(0).to_python()
    assert [[str(cell) for cell in row] for row in rows][-2:] == [["1", "Köln"], ["2", "Bonn"]]


def test_templates_load_neither_arrow_nor_xlsxwriter(interpreter: Path, tmp_path: Path) -> None:
    """Who only checks a template does not pay for rendering."""
    code = "import sys, excel.template.reading\nprint({'pyarrow', 'xlsxwriter'} & {*sys.modules})"

    assert run_python(interpreter, code, tmp_path) == "set()"


SPOOLED = """
import os, random, sys
from pathlib import Path
import pyarrow as pa
from excel.template.models import WorkbookLayout, TableTextsAndTemplate
from excel.workbook import Workbook

spool, table = Path.cwd() / "spool", TableTextsAndTemplate()
spool.mkdir()
workbook = Workbook(WorkbookLayout(tables=[table]), time_zone="UTC", folder=str(spool))
rows = workbook.begin_table(table, ["a"])
for _ in range(20):
    rows.add(pa.RecordBatch.from_pydict({"a": [random.randbytes(400).hex() for _ in range(2_000)]}))
opened = [each for each in Path("/proc/self/fd").iterdir() if str(spool) in os.path.realpath(each)]
print(sum(each.stat().st_size for each in opened) > 4 * 1024 * 1024)
workbook.finish(lambda data: None)
"""


def test_packed_rows_wait_in_the_folder_that_was_named(interpreter: Path, tmp_path: Path) -> None:
    """Memory holds a few megabytes of them; what is beyond lies in a file there."""
    assert run_python(interpreter, SPOOLED, tmp_path) == "True"
