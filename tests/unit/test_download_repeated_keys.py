"""Rows that have a key twice: found wherever they are, and without false alarms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads import repeats
from domain.downloads.models import TextEncoding
from domain.downloads.shape import PageEncoder, TableShape
from domain.downloads.sinks.csv import CsvSink

COLUMNS = ["a", "b", "c"]
VALUES = ("1", "null", '"x"', '"\\":"', '"\\\\"', '{"a":1,"a":2}', '[{"b":{"c":"d:"}}]', '"{\\"a\\":1}"', '" : "')


def find_repeated_keys(data: bytes, shape: TableShape | None = None) -> tuple[str, ...]:
    """The keys that a page's rows have twice."""
    encoder = PageEncoder(shape or TableShape(columns=COLUMNS), CsvSink(TextEncoding.UTF_8, guard_formulas=True))
    return encoder.encode(b'{"total":9,"data":%b}' % data).repeated_keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b'[{"a":1,"b":2,"c":3}]', ()),
        (b'[{"a":1,"b":2,"c":3,"a":4}]', ("a",)),
        (b'[{"a":1,"b":2,"c":3},{"b":1,"a":1,"b":1,"a":1}]', ("b", "a")),
        (b'[{"a":1,"a":2,"b":3}]', ("a",)),  # as many keys as columns
        (b'[{"a":1,"a":2},{"b":3,"c":3}]', ("a",)),
        (b'[{"a" : 1 ,\n"a"\t: 2}]', ("a",)),
        (b'[{"\\u0061":1,"a":2}]', ("a",)),
        (b'[{"a":null,"a":null}]', ("a",)),
        (b'[{"a":{"a":1,"a":2},"b":[{"c":1}]}]', ()),  # the file has the cell as it is
        (b'[{"a":{"a":1},"a":[{"c":1}]}]', ("a",)),
        (b'[{"a":"\\\\\\":1","b":"{\\"a\\":1,\\"a\\":2}"}]', ()),
        (b"[{}]", ()),
        (b"[]", ()),
    ],
)
def test_keys_that_come_twice_are_found(data: bytes, keys: tuple[str, ...]) -> None:
    """However the page is written, and whether or not other keys are missing."""
    assert find_repeated_keys(data) == keys


def test_columns_that_are_nested_late_are_no_alarm_and_hide_none() -> None:
    """Only the first rows show which columns are looked into; the others are where that does not suffice."""
    flat = b",".join([b'{"a":1,"b":2}'] * repeats.SAMPLE_ROWS)
    assert find_repeated_keys(b'[%b,{"a":{"x":1},"b":{"y":2}}]' % flat) == ()
    assert find_repeated_keys(b'[%b,{"a":{"x":1},"b":{"y":2},"b":3}]' % flat) == ("b",)


def test_keys_that_are_left_out_are_looked_at_too() -> None:
    """So are those of rows in groups."""
    shape = TableShape(columns=["a"], left_out=["b"], keys=["a", "b"])
    assert find_repeated_keys(b'[{"b":1,"a":1,"b":2}]', shape) == ("b",)
    grouped = TableShape(columns=["a", "row"], left_out=[], row_head="row")
    assert find_repeated_keys(b'{"one":[{"a":1}],"two":[{"a":1,"a":2}]}', grouped) == ("a",)
    assert find_repeated_keys(b'{"one":[{"a":1}],"two":[{"a":{"a":2}}]}', grouped) == ()


@given(st.lists(st.lists(st.tuples(st.sampled_from(COLUMNS), st.sampled_from(VALUES)), max_size=5), max_size=6))
def test_it_is_told_of_exactly_those_rows_that_lose_a_value(rows: list[list[tuple[str, str]]]) -> None:
    """With any content of the cells."""
    data = ",".join("{" + ",".join(f'"{key}":{value}' for key, value in row) + "}" for row in rows)
    keys = [[key for key, _ in row] for row in rows]
    losing = next((row for row in keys if len(set(row)) < len(row)), [])
    assert set(find_repeated_keys(f"[{data}]".encode())) == {key for key in losing if losing.count(key) > 1}


def test_the_first_page_of_each_key_is_told_and_not_too_many() -> None:
    """Of a source that gives thousands of keys twice, some are enough."""
    pages = repeats.add_repeated_keys_with_first_page({"a": 7}, ["a", "b"], 3)
    assert pages == {"a": 3, "b": 3}
    assert repeats.add_repeated_keys_with_first_page(pages, ["a"], 9) == pages
    many = repeats.add_repeated_keys_with_first_page(pages, [f"k{n}" for n in range(1_000)], 5)
    assert len(many) == repeats.REPEATED_KEYS_MAX
    assert repeats.build_warning_for_each_repeated_key(pages)[0] == (
        "Rows of the source have the key `a` twice, first on page 3; the file has the last value."
    )
