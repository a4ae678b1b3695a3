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

from excel import values
from excel.forms import Form
from excel.template.models import Kind
from excel.zones import Zone

SHANGHAI = Zone("Asia/Shanghai")
NOON = "45351.6666666667"
"""2024-02-29T08:00:00Z on a clock in Shanghai."""


def taken(cells: pa.Array, kind: Kind = Kind.AUTO) -> list[tuple[str, str] | None]:
    """The form and payload of each cell, None where it is empty."""
    found = values.read(cells, kind, SHANGHAI)
    forms = [Form(form) for form in found.forms]
    assert found.counts == tuple(forms.count(form) for form in Form)
    assert [form is Form.EMPTY for form in forms] == [payload is None for payload in found.payload.to_pylist()]
    return [
        None
        if payload is None
        else (form.name, payload.removesuffix(".0000000000") if form is Form.MOMENT else payload)
        for form, payload in zip(forms, found.payload.to_pylist(), strict=True)
    ]


def raw(*cells: str) -> pa.Array:
    """A column as pages are staged."""
    return pa.array([cell.encode() for cell in cells], pa.binary())


@pytest.mark.parametrize(
    ("kind", "cell", "expected"),
    [
        (Kind.AUTO, "null", None),
        (Kind.AUTO, "", None),
        (Kind.AUTO, "12.50", ("NUMBER", "12.50")),
        (Kind.AUTO, "-0.001", ("NUMBER", "-0.001")),
        (Kind.AUTO, "1e5", ("NUMBER", "1e5")),
        (Kind.AUTO, "1e400", ("TEXT", "1e400")),
        (Kind.AUTO, "123456789012345", ("NUMBER", "123456789012345")),
        (Kind.AUTO, "-123456789012345", ("NUMBER", "-123456789012345")),
        (Kind.AUTO, "1234567890123456", ("TEXT", "1234567890123456")),
        (Kind.AUTO, "0.30000000000000004", ("NUMBER", "0.30000000000000004")),
        (Kind.AUTO, "0.30000000000000005", ("TEXT", "0.30000000000000005")),
        (Kind.AUTO, "1.500000000000000000", ("NUMBER", "1.500000000000000000")),
        (Kind.AUTO, "true", ("BOOLEAN", "1")),
        (Kind.AUTO, "false", ("BOOLEAN", "0")),
        (Kind.AUTO, '"007"', ("TEXT", "007")),
        (Kind.AUTO, '"12"', ("TEXT", "12")),
        (Kind.AUTO, '""', ("TEXT", "")),
        (Kind.AUTO, '"null"', ("TEXT", "null")),
        (Kind.AUTO, '"=1+1"', ("TEXT", "=1+1")),
        (Kind.AUTO, '"\\u4e2d\\"\\n"', ("TEXT", '中"\n')),
        (Kind.AUTO, '"\\ud83d\\ude00"', ("TEXT", "😀")),
        (Kind.AUTO, '"\\ud83d"', ("TEXT", "\ufffd")),
        (Kind.AUTO, '{"a": [1]}', ("TEXT", '{"a": [1]}')),
        (Kind.AUTO, "[]", ("TEXT", "[]")),
        (Kind.AUTO, '"2024-02-29T08:00:00Z"', ("MOMENT", NOON)),
        (Kind.AUTO, '"2024-02-29T08:00:00"', ("TEXT", "2024-02-29T08:00:00")),
        (Kind.AUTO, '"2024-02-29"', ("TEXT", "2024-02-29")),
        (Kind.TEXT, "12.50", ("TEXT", "12.50")),
        (Kind.TEXT, "true", ("TEXT", "true")),
        (Kind.TEXT, "false", ("TEXT", "false")),
        (Kind.TEXT, '"2024-02-29T08:00:00Z"', ("TEXT", "2024-02-29T08:00:00Z")),
        (Kind.NUMBER, '"12.50"', ("NUMBER", "12.50")),
        (Kind.NUMBER, '"-3"', ("NUMBER", "-3")),
        (Kind.NUMBER, '"007"', ("TEXT", "007")),
        (Kind.NUMBER, '"1e5"', ("TEXT", "1e5")),
        (Kind.NUMBER, '"12 kg"', ("TEXT", "12 kg")),
        (Kind.NUMBER, '"1234567890123456"', ("TEXT", "1234567890123456")),
        (Kind.NUMBER, "1234567890123456", ("TEXT", "1234567890123456")),
        (Kind.NUMBER, "0.30000000000000004", ("NUMBER", "0.30000000000000004")),
        (Kind.NUMBER, "0.12345678901234567890", ("TEXT", "0.12345678901234567890")),
        (Kind.DATE, '"2024-02-29"', ("MOMENT", "45351")),
        (Kind.DATE, "1700000000", ("NUMBER", "1700000000")),
        (Kind.DATETIME, '"2024-02-29 16:00"', ("MOMENT", NOON)),
        (Kind.DATETIME, '"2024-02-29T16:00:00"', ("MOMENT", NOON)),
        (Kind.DATETIME, '"2024-02-29T09:00:00+0100"', ("MOMENT", NOON)),
        (Kind.DATETIME, '"soon"', ("TEXT", "soon")),
        (Kind.BOOLEAN, '"TRUE"', ("BOOLEAN", "1")),
        (Kind.BOOLEAN, "0", ("BOOLEAN", "0")),
        (Kind.BOOLEAN, "2", ("NUMBER", "2")),
        (Kind.BOOLEAN, '"yes"', ("TEXT", "yes")),
        (Kind.RICH, '"<b>x</b>"', ("RICH", "<b>x</b>")),
        (Kind.RICH, '"x"', ("TEXT", "x")),
        (Kind.LINK, '"https://example.com/?a=1"', ("LINK", "https://example.com/?a=1")),
        (Kind.LINK, '"javascript:alert(1)"', ("TEXT", "javascript:alert(1)")),
        (Kind.LINK, f'"https://example.com/{"x" * 2060}"', ("TEXT", f"https://example.com/{'x' * 2060}")),
        (Kind.LINK, f'"http://e.com/{"😀" * 1033}"', ("LINK", f"http://e.com/{'😀' * 1033}")),
        (Kind.LINK, f'"http://e.com/{"😀" * 1034}"', ("TEXT", f"http://e.com/{'😀' * 1034}")),
        (Kind.FORMULA, '"=A1+1"', ("FORMULA", "=A1+1")),
        (Kind.FORMULA, '"A1+1"', ("TEXT", "A1+1")),
        (Kind.FORMULA, '"="', ("TEXT", "=")),
    ],
)
def test_a_cell_is_taken_for_what_it_is(kind: Kind, cell: str, expected: tuple[str, str] | None) -> None:
    """Whether it stands alone in its column or among cells of every other form."""
    others = ["null", "7", '"a\\nb"', "true", '"2024-02-29T08:00:00Z"', '{"b": 1}', '"z"']
    assert taken(raw(cell), kind) == [expected]
    assert taken(raw(cell, cell, "null"), kind) == [expected, expected, None]
    assert taken(raw(*others, cell, *others), kind)[len(others)] == expected


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
    assert taken(cells) == expected
    longer = pa.concat_arrays([cells, cells, cells])
    assert taken(longer.slice(len(cells), len(cells))) == expected


def test_numbers_that_stand_as_text_are_counted() -> None:
    """Those that would lose digits, not those that a column wants as text."""
    cells = raw("1234567890123456", "1", "null", '"1234567890123456"')
    assert values.read(cells, Kind.AUTO, SHANGHAI).long_numbers == 1
    assert values.read(cells, Kind.TEXT, SHANGHAI).long_numbers == 0


def test_conditions_ask_numbers_as_numbers_and_dates_as_texts() -> None:
    """A date is what the clock on the wall shows; an empty cell is neither."""
    cells = raw("1.5", '"x"', "true", "null", '"2024-02-29T08:00:00Z"')
    numbers, texts = values.asked(values.read(cells, Kind.AUTO, SHANGHAI))
    assert numbers.to_pylist() == [1.5, None, None, None, None]
    assert texts.to_pylist() == [None, "x", "true", None, "2024-02-29T16:00:00"]


def expected_of(cell: Any) -> tuple[str, str] | None:
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


def written(cell: Any, *, ascii_only: bool) -> bytes:
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
    column = pa.array([b"1"] * start + [written(cell, ascii_only=ascii_only) for cell in cells], pa.binary())
    assert taken(column.slice(start)) == [expected_of(cell) for cell in cells]


@given(st.lists(st.text(), min_size=1), st.data())
def test_half_a_pair_of_surrogates_is_made_safe(texts: list[str], data: st.DataObject) -> None:
    """Whatever else the column holds stays as it is."""
    place = data.draw(st.integers(0, len(texts) - 1))
    cells = [written(text, ascii_only=True) for text in texts]
    cells[place] = b'"a\\udc00b"'
    expected = [expected_of(text) for text in texts]
    expected[place] = ("TEXT", "a\ufffdb")
    assert taken(pa.array(cells, pa.binary())) == expected


def test_forms_are_small() -> None:
    """One byte a cell, as chunks have many."""
    assert values.read(raw("1"), Kind.AUTO, SHANGHAI).forms.dtype == np.uint8
