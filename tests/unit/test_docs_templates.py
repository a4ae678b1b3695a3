"""The reference of templates is true: examples are templates, faults are those reported, tables are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from excel.table_body import GROUPED_ROWS_MAX
from excel.template.conditions import parse_condition
from excel.template.fields import TemplateFaults
from excel.template.models import CellKind
from excel.template.reading import read_template
from excel.template.trees import COLUMN_FIELDS, KINDS, ROW_FIELDS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "templates.md").read_text()
BLOCKS = re.findall(r"```json\n(.+?)```\n(?:\n```text\n(.+?)```)?", PAGE, re.DOTALL)
RIGHT = [example for example, faults in BLOCKS if not faults]
WRONG = [(example, faults.splitlines()) for example, faults in BLOCKS if faults]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, the head left out."""
    section = PAGE.split(f"\n{heading}\n")[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None
    return [line.split("|")[1:-1] for line in lines[0].splitlines()[2:]]


def find_quoted(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


@pytest.mark.parametrize("example", RIGHT)
def test_examples_are_templates(example: str) -> None:
    """What a reader copies works."""
    assert read_template(json.loads(example)).leaves


@pytest.mark.parametrize(("example", "faults"), WRONG)
def test_faults_are_those_told(example: str, faults: list[str]) -> None:
    """The page shows the very sentences."""
    with pytest.raises(TemplateFaults) as caught:
        read_template(json.loads(example))

    assert caught.value.faults == faults


def test_both_kinds_of_examples_are_there() -> None:
    """A page that lost its examples would pass otherwise."""
    assert (len(RIGHT), len(WRONG)) == (7, 1)


def test_fields_are_complete() -> None:
    """Each field of each kind of node has its row."""
    columns = [name for row in table("## Fields of a column") for name in find_quoted(row[0])]
    rows = [name for row in table("## Row heads") for name in find_quoted(row[0])]

    assert sorted({*columns, "v_align", "valign"}) == sorted(COLUMN_FIELDS)
    assert sorted(rows) == sorted(ROW_FIELDS)


def test_types_are_complete() -> None:
    """Each type has its row, with all its other names."""
    listed = {word: row for row in table("### Types") for word in find_quoted(row[0]) + find_quoted(row[1])}

    assert listed.keys() == KINDS.keys()
    assert all(kind.value in listed for kind in CellKind)
    assert all(KINDS[word].value in find_quoted(row[0]) for word, row in listed.items())


def test_the_limit_of_row_heads_is_current() -> None:
    """The bound is the constant of the module that holds rows."""
    assert f"has {GROUPED_ROWS_MAX:,} rows of data at most" in PAGE


@pytest.mark.parametrize("condition", [find_quoted(row[0])[0] for row in table("## Conditional styles")])
def test_conditions_are_some(condition: str) -> None:
    """Each example of a condition can be read."""
    assert parse_condition(condition)
