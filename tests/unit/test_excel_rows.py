"""Rows of data are placed as row heads say, none is lost, and none is under a head that is not its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.limits import UncoveredRows
from excel.table_body import list_row_places_by_leaf
from excel.template.models import TableTemplate
from excel.template.reading import read_template

CITIES: Any = [
    {"name": "east", "children": [{"name": "sh", "row_count": 2}, {"name": "hz"}]},
    {"title": "remarks"},
    {"name": "gz", "row_count": 3},
]


def template(rows: Any) -> TableTemplate:
    return read_template({"row": rows, "col": {"id": "No."}})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], [[None, None], [None], [None], [None, None, None]]),
        (["sh", "hz", "gz"], [[0, None], [1], [None], [2, None, None]]),
        (["gz", "sh", "gz", "sh"], [[1, 3], [None], [None], [0, 2, None]]),
        (["hz", "hz", "sh", "sh", "sh"], [[2, 3, 4], [0, 1], [None], [None, None, None]]),
    ],
)
def test_rows_stand_under_their_heads(keys: list[str], expected: list[list[int | None]]) -> None:
    """In the order of the data; a head keeps the rows that it says, and takes more if it has more."""
    assert list_row_places_by_leaf(template(CITIES), keys) == expected


def test_rows_without_a_head() -> None:
    """They are an error that lists each key once; the name of a group is no key."""
    with pytest.raises(UncoveredRows) as caught:
        list_row_places_by_leaf(template(CITIES), ["sh", "bj", "east", "bj", ""])

    assert caught.value.names == ["bj", "east", ""]
    assert str(caught.value) == "No row head covers the rows of “bj”, “east”, “”."


def test_the_list_of_rows_without_a_head_is_bounded() -> None:
    """Data that has nothing to do with the template does not become a message."""
    with pytest.raises(UncoveredRows) as caught:
        list_row_places_by_leaf(template(CITIES), [f"{place:070}" for place in range(1000)])

    assert len(caught.value.names) == 1000
    assert str(caught.value).startswith(f"No row head covers the rows of “{'0' * 60}…”, ")
    assert str(caught.value).endswith("…” and 980 more.")


counts = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(counts, st.data())
def test_nothing_is_lost(row_counts: list[int], data: st.DataObject) -> None:
    """Each row of data has one row of the sheet, in order under each head, which keeps at least what it says."""
    names = [f"r{place}" for place in range(len(row_counts))]
    keys = data.draw(st.lists(st.sampled_from(names), max_size=12))
    rows = [{"name": name, "row_count": count} for name, count in zip(names, row_counts, strict=True)]

    arranged = list_row_places_by_leaf(template(rows), keys)

    for name, count, places in zip(names, row_counts, arranged, strict=True):
        mine = [place for place, key in enumerate(keys) if key == name]
        assert places == mine + [None] * (count - len(mine))
