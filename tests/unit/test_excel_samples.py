"""Invented rows: every column has something to show, and every row head within the sample has a row."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from api.downloads.preview import SAMPLE_ROWS, build_sample_rows
from excel.template.reading import read_template


def column(**node: Any) -> list[JsonValue]:
    """The sample cells of one column."""
    return [row["a"] for row in build_sample_rows(read_template([{"name": "a", "title": "A", **node}]))]


@pytest.mark.parametrize(
    "node",
    [
        {"type": "number"},
        {"format": "#,##0.00"},
        {"format": '[Red]0"d"'},
        {"condition_style": [{"condition": ">=0", "color": "red"}]},
    ],
)
def test_numbers_have_either_sign(node: dict[str, Any]) -> None:
    """Columns of numbers, of a number format or of conditions show what these do."""
    cells = [cell for cell in column(**node) if isinstance(cell, (int, float))]

    assert len(cells) == SAMPLE_ROWS
    assert min(cells) < 0 < max(cells)


def test_columns_of_every_other_kind() -> None:
    """Dates can be read, links lead somewhere, formulas calculate, texts name their column."""
    assert [date.fromisoformat(str(cell)).year for cell in column(type="date")] == [2026] * SAMPLE_ROWS
    for node in ({"type": "datetime"}, {"format": 'yyyy"年"m"月"'}):
        assert {datetime.fromisoformat(str(cell)).tzname() for cell in column(**node)} == {"UTC"}
    assert set(column(type="boolean")) == {True, False}
    assert all("<b>" in str(cell) for cell in column(type="rich"))
    assert all(str(cell).startswith("https://") for cell in column(type="link"))
    assert all(str(cell).startswith("=") for cell in column(type="formula"))
    assert column()[:2] == ["A 1", "A 2"]
    assert column(format="@")[0] == "A 1"


def test_charted_columns_are_numbers() -> None:
    """A chart of texts would be empty."""
    template: JsonValue = {
        "col": [{"name": "a"}, {"name": "b"}],
        "charts": [{"type": "pie", "values": ["b"], "categories": "a"}],
    }

    assert [type(cell) for cell in build_sample_rows(read_template(template))[0].values()] == [str, int]


def test_row_heads_have_their_rows() -> None:
    """As many as each reserves, ten at most; groups have none."""
    template: JsonValue = {
        "col": [{"name": "a"}],
        "row": [
            {"name": "x", "row_count": 2},
            {"title": "group", "children": [{"name": "y"}, {"name": "z", "row_count": 50}]},
        ],
    }

    assert [row["_row_head_"] for row in build_sample_rows(read_template(template))] == ["x", "x", "y", *["z"] * 7]
