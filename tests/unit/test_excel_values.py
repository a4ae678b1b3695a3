"""Cells of JSON text or of typed columns become numbers, texts, dates and booleans, by themselves and by their kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.cells import CellForm
from excel.moments import LocalTimeConverter
from excel.template.models import CellKind
from excel.values import read_cell_values_by_kind, to_comparable_numbers_and_texts

SHANGHAI = LocalTimeConverter("Asia/Shanghai")
NOON = "45351.6666666667"
"""2024-02-29T08:00:00Z on a clock in Shanghai."""


def read_cells(cells: pa.Array, kind: CellKind = CellKind.AUTO) -> list[tuple[str, str] | None]:
    """The form and payload of each cell, None where it is empty."""
    found = read_cell_values_by_kind(cells, kind, SHANGHAI)
    forms = [CellForm(form) for form in found.forms]
    assert found.counts == tuple(forms.count(form) for form in CellForm)
    assert [form is CellForm.EMPTY for form in forms] == [payload is None for payload in found.payload.to_pylist()]
    return [
        None
        if payload is None
        else (form.name, payload.removesuffix(".0000000000") if form is CellForm.MOMENT else payload)
        for form, payload in zip(forms, found.payload.to_pylist(), strict=True)
    ]


def make_json_column(*cells: str) -> pa.Array:
    """A column as pages are staged."""
    return pa.array([cell.encode() for cell in cells], pa.binary())


@pytest.mark.parametrize(
    ("kind", "cell", "expected"),
    [
        (CellKind.AUTO, "null", None),
        (CellKind.AUTO, "", None),
        (CellKind.AUTO, "12.50", ("NUMBER", "12.50")),
        (CellKind.AUTO, "-0.001", ("NUMBER", "-0.001")),
        (CellKind.AUTO, "1e5", ("NUMBER", "1e5")),
        (CellKind.AUTO, "1e400", ("TEXT", "1e400")),
        (CellKind.AUTO, "1e99999999999999999999", ("TEXT", "1e99999999999999999999")),
        (CellKind.AUTO, "0.5e-99999999999999999999", ("TEXT", "0.5e-99999999999999999999")),
        (CellKind.AUTO, "1.2345678901234567e99999999999999999999", ("TEXT", "1.2345678901234567e99999999999999999999")),
        (CellKind.AUTO, "123456789012345", ("NUMBER", "123456789012345")),
        (CellKind.AUTO, "-123456789012345", ("NUMBER", "-123456789012345")),
        (CellKind.AUTO, "1234567890123456", ("TEXT", "1234567890123456")),
        (CellKind.AUTO, "0.30000000000000004", ("NUMBER", "0.30000000000000004")),
        (CellKind.AUTO, "0.30000000000000005", ("TEXT", "0.30000000000000005")),
        (CellKind.AUTO, "1.500000000000000000", ("NUMBER", "1.500000000000000000")),
        (CellKind.AUTO, "true", ("BOOLEAN", "1")),
        (CellKind.AUTO, "false", ("BOOLEAN", "0")),
        (CellKind.AUTO, '"007"', ("TEXT", "007")),
        (CellKind.AUTO, '"12"', ("TEXT", "12")),
        (CellKind.AUTO, '""', ("TEXT", "")),
        (CellKind.AUTO, '"null"', ("TEXT", "null")),
        (CellKind.AUTO, '"=1+1"', ("TEXT", "=1+1")),
        (CellKind.AUTO, '"\\u4e2d\\"\\n"', ("TEXT", '中"\n')),
        (CellKind.AUTO, '"\\ud83d\\ude00"', ("TEXT", "😀")),
        (CellKind.AUTO, '"\\ud83d"', ("TEXT", "\ufffd")),
        (CellKind.AUTO, '{"a": [1]}', ("TEXT", '{"a": [1]}')),
        (CellKind.AUTO, "[]", ("TEXT", "[]")),
        (CellKind.AUTO, '"2024-02-29T08:00:00Z"', ("MOMENT", NOON)),
        (CellKind.AUTO, '"2024-02-29T08:00:00"', ("TEXT", "2024-02-29T08:00:00")),
        (CellKind.AUTO, '"2024-02-29"', ("TEXT", "2024-02-29")),
        (CellKind.TEXT, "12.50", ("TEXT", "12.50")),
        (CellKind.TEXT, "true", ("TEXT", "true")),
        (CellKind.TEXT, "false", ("TEXT", "false")),
        (CellKind.TEXT, '"2024-02-29T08:00:00Z"', ("TEXT", "2024-02-29T08:00:00Z")),
        (CellKind.NUMBER, '"12.50"', ("NUMBER", "12.50")),
        (CellKind.NUMBER, '"-3"', ("NUMBER", "-3")),
        (CellKind.NUMBER, '"007"', ("TEXT", "007")),
        (CellKind.NUMBER, '"1e5"', ("TEXT", "1e5")),
        (CellKind.NUMBER, '"12 kg"', ("TEXT", "12 kg")),
        (CellKind.NUMBER, '"1234567890123456"', ("TEXT", "1234567890123456")),
        (CellKind.NUMBER, "1234567890123456", ("TEXT", "1234567890123456")),
        (CellKind.NUMBER, "0.30000000000000004", ("NUMBER", "0.30000000000000004")),
        (CellKind.NUMBER, "0.12345678901234567890", ("TEXT", "0.12345678901234567890")),
        (CellKind.DATE, '"2024-02-29"', ("MOMENT", "45351")),
        (CellKind.DATE, "1700000000", ("NUMBER", "1700000000")),
        (CellKind.DATETIME, '"2024-02-29 16:00"', ("MOMENT", NOON)),
        (CellKind.DATETIME, '"2024-02-29T16:00:00"', ("MOMENT", NOON)),
        (CellKind.DATETIME, '"2024-02-29T09:00:00+0100"', ("MOMENT", NOON)),
        (CellKind.DATETIME, '"soon"', ("TEXT", "soon")),
        (CellKind.BOOLEAN, '"TRUE"', ("BOOLEAN", "1")),
        (CellKind.BOOLEAN, "0", ("BOOLEAN", "0")),
        (CellKind.BOOLEAN, "2", ("NUMBER", "2")),
        (CellKind.BOOLEAN, '"yes"', ("TEXT", "yes")),
        (CellKind.RICH, '"<b>x</b>"', ("RICH", "<b>x</b>")),
        (CellKind.RICH, '"x"', ("TEXT", "x")),
        (CellKind.LINK, '"https://example.com/?a=1"', ("LINK", "https://example.com/?a=1")),
        (CellKind.LINK, '"javascript:alert(1)"', ("TEXT", "javascript:alert(1)")),
        (CellKind.LINK, f'"https://example.com/{"x" * 2060}"', ("TEXT", f"https://example.com/{'x' * 2060}")),
        (CellKind.LINK, f'"http://e.com/{"😀" * 1033}"', ("LINK", f"http://e.com/{'😀' * 1033}")),
        (CellKind.LINK, f'"http://e.com/{"😀" * 1034}"', ("TEXT", f"http://e.com/{'😀' * 1034}")),
        (CellKind.FORMULA, '"=A1+1"', ("FORMULA", "=A1+1")),
        (CellKind.FORMULA, '"A1+1"', ("TEXT", "A1+1")),
        (CellKind.FORMULA, '"="', ("TEXT", "=")),
    ],
)
def test_a_cell_is_taken_for_what_it_is(kind: CellKind, cell: str, expected: tuple[str, str] | None) -> None:
    """Whether it is alone in its column or among cells of every other form."""
    others = ["null", "7", '"a\\nb"', "true", '"2024-02-29T08:00:00Z"', '{"b": 1}', '"z"']
    assert read_cells(make_json_column(cell), kind) == [expected]
    assert read_cells(make_json_column(cell, cell, "null"), kind) == [expected, expected, None]
    assert read_cells(make_json_column(*others, cell, *others), kind)[len(others)] == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pa.array([1, None]), [("NUMBER", "1"), None]),
        (pa.array([2**53]), [("TEXT", "9007199254740992")]),
        (pa.array([0.1 + 0.2, float("inf"), None]), [("NUMBER", "0.30000000000000004"), ("TEXT", "inf"), None]),
        (pa.array([Decimal("1.10"), None]), [("NUMBER", "1.10"), None]),
        (pa.array([True, None, False]), [("BOOLEAN", "1"), None, ("BOOLEAN", "0")]),
        (pa.array(["a", None, "2024-02-29T08:00:00Z"]), [("TEXT", "a"), None, ("MOMENT", NOON)]),
        (pa.array(["a", None, "a"]).dictionary_encode(), [("TEXT", "a"), None, ("TEXT", "a")]),
        (pa.array(["a"], pa.large_string()), [("TEXT", "a")]),
        (pa.array([date(2024, 2, 29), None]), [("DAY", "45351"), None]),
        (pa.array([date(1900, 2, 28)]), [("TEXT", "1900-02-28")]),
        (pa.array([datetime(2024, 2, 29, 16), None]), [("MOMENT", NOON), None]),  # noqa: DTZ001
        (pa.array([datetime(2024, 2, 29, 8, tzinfo=UTC)]), [("MOMENT", NOON)]),
        (pa.array([{"a": "中"}, None]), [("TEXT", '{"a": "中"}'), None]),
        (pa.nulls(2), [None, None]),
        (pa.array([], pa.string()), []),
        (pa.array([], pa.timestamp("us")), []),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_typed_column_is_taken_by_its_type(cells: pa.Array, expected: list[Any]) -> None:
    """Also where it is a part of a longer column."""
    assert read_cells(cells) == expected
    longer = pa.concat_arrays([cells, cells, cells])
    assert read_cells(longer.slice(len(cells), len(cells))) == expected


def test_numbers_that_stand_as_text_are_counted() -> None:
    """Those that would lose digits, not those that a column wants as text."""
    cells = make_json_column("1234567890123456", "1", "null", '"1234567890123456"')
    assert read_cell_values_by_kind(cells, CellKind.AUTO, SHANGHAI).long_numbers == 1
    assert read_cell_values_by_kind(cells, CellKind.TEXT, SHANGHAI).long_numbers == 0


def test_conditions_ask_numbers_as_numbers_and_dates_as_texts() -> None:
    """A date is what the clock on the wall shows; an empty cell is neither."""
    cells = make_json_column("1.5", '"x"', "true", "null", '"2024-02-29T08:00:00Z"')
    numbers, texts = to_comparable_numbers_and_texts(read_cell_values_by_kind(cells, CellKind.AUTO, SHANGHAI))
    assert numbers.to_pylist() == [1.5, None, None, None, None]
    assert texts.to_pylist() == [None, "x", "true", None, "2024-02-29T16:00:00"]


def read_expected(cell: Any) -> tuple[str, str] | None:
    """What a cell that is no date is in a column that says nothing, by plain Python."""
    match cell:
        case None:
            return None
        case bool():
            return "BOOLEAN", str(int(cell))
        case int():
            return "NUMBER" if len(str(abs(cell))) <= 15 else "TEXT", str(cell)
        case Decimal():
            digits = str(cell).lstrip("-").replace(".", "").strip("0")
            is_binary = "." in str(cell) and Decimal(repr(float(cell))) == cell
            return "NUMBER" if len(digits) <= 15 or is_binary else "TEXT", str(cell)
        case str():
            return "TEXT", cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case _:
            return "TEXT", json.dumps(cell)


def write_cell(cell: Any, *, ascii_only: bool) -> bytes:
    """A cell as some source may write it."""
    text = str(cell) if isinstance(cell, Decimal) else json.dumps(cell, ensure_ascii=ascii_only)
    return text.encode()


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.decimals(-(10**9), 10**9, places=3),
    st.decimals(-1, 1, places=18).filter(lambda number: "E" not in str(number)),
    st.text(),
    st.lists(st.integers(), max_size=2),
)
UNIFORM = st.sampled_from([st.integers(-(10**18), 10**18), st.text(), st.booleans(), st.none()]).flatmap(st.lists)


@given(st.one_of(st.lists(CELLS), UNIFORM), st.booleans(), st.integers(0, 3))
def test_any_column_is_what_plain_python_makes_of_it(cells: Sequence[Any], ascii_only: bool, start: int) -> None:
    """Mixed or of one kind, escaped or not, whole or a part of a longer one."""
    column = pa.array([b"1"] * start + [write_cell(cell, ascii_only=ascii_only) for cell in cells], pa.binary())
    assert read_cells(column.slice(start)) == [read_expected(cell) for cell in cells]


@given(st.lists(st.text(), min_size=1), st.data())
def test_half_a_pair_of_surrogates_is_made_safe(texts: list[str], data: st.DataObject) -> None:
    """Whatever else the column holds stays as it is."""
    place = data.draw(st.integers(0, len(texts) - 1))
    cells = [write_cell(text, ascii_only=True) for text in texts]
    cells[place] = b'"a\\udc00b"'
    expected = [read_expected(text) for text in texts]
    expected[place] = ("TEXT", "a\ufffdb")
    assert read_cells(pa.array(cells, pa.binary())) == expected


def test_forms_are_small() -> None:
    """One byte a cell, as chunks have many."""
    assert read_cell_values_by_kind(make_json_column("1"), CellKind.AUTO, SHANGHAI).forms.dtype == np.uint8
