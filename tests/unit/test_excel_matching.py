"""Conditions hold for whole columns exactly where they hold for each cell."""

from __future__ import annotations

import operator
import re
from typing import assert_never

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.columns import mask_matching_cells
from excel.template.conditions import (
    AndCondition,
    ComparisonCondition,
    ComparisonOperator,
    Condition,
    InCondition,
    LikeCondition,
    NotCondition,
    OrCondition,
    parse_condition,
)

Cell = float | str | None


def match_cells(condition: Condition, cells: list[Cell], text_type: pa.DataType | None = None) -> list[bool]:
    numbers = pa.array([cell if isinstance(cell, (int, float)) else None for cell in cells], pa.float64())
    texts = pa.array([cell if isinstance(cell, str) else None for cell in cells], text_type or pa.string())
    answers = mask_matching_cells(condition, numbers, texts)
    assert answers.type == pa.bool_()
    assert answers.null_count == 0
    return [answer.as_py() for answer in answers]


CELLS: list[Cell] = [-10, -0.0, 0, 9.5, "9", "abc", "ABC", "a%c", "a\nc", "", None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">=0 or <=-10", [-10, 0, 0, 9.5]),
        ("= 0", [0, 0]),
        ("in (0, 9.5)", [0, 0, 9.5]),
        ("in (-0)", [0, 0]),
        ("= 9", []),  # the text is no number
        ("= '9'", ["9"]),
        ("!= 0", [-10, 9.5, "9", "abc", "ABC", "a%c", "a\nc", ""]),
        ("not =0", [-10, 9.5, "9", "abc", "ABC", "a%c", "a\nc", ""]),
        ("!= abc", [-10, 0, 0, 9.5, "9", "ABC", "a%c", "a\nc", ""]),
        ("= ''", [""]),
        ("> 'a'", ["abc", "a%c", "a\nc"]),
        ("< 0", [-10]),
        ("not <0", [0, 0, 9.5, "9", "abc", "ABC", "a%c", "a\nc", ""]),
        ("in (abc, 9.5, 'x')", [9.5, "abc"]),
        ("not in (abc, -10)", [0, 0, 9.5, "9", "ABC", "a%c", "a\nc", ""]),
        ("like 'a_c'", ["abc", "a%c", "a\nc"]),
        ("like 'a%'", ["abc", "a%c", "a\nc"]),
        (r"like 'a\%c'", ["a%c"]),
        ("like '%'", ["9", "abc", "ABC", "a%c", "a\nc", ""]),
        ("like 9", ["9"]),
        ("> -100 and not (= 0 or = 9.5)", [-10]),
    ],
)
@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string()], ids=str)
def test_matches(text: str, expected: list[Cell], text_type: pa.DataType) -> None:
    """Numbers meet numbers, texts meet texts, and an empty cell meets nothing."""
    answers = match_cells(parse_condition(text), CELLS, text_type)

    assert [cell for cell, answer in zip(CELLS, answers, strict=True) if answer] == expected


def test_a_cell_that_is_both() -> None:
    """A cell that is given as a number and as a text gets the answer for either."""
    numbers, texts = pa.array([5.0]), pa.array(["5"])

    assert [
        mask_matching_cells(parse_condition(text), numbers, texts)[0].as_py() for text in ("=5", "='5'", "like '_'")
    ] == [True] * 3


def test_no_cells() -> None:
    """A column without rows has no answers."""
    assert match_cells(parse_condition("not (in (1, a) or like 'x%')"), []) == []


numbers = st.sampled_from([-10.0, -0.0, 0.0, 0.1, 1.0, 1e300]) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text("aA%_\\.*上\n", max_size=4)
patterns = st.lists(st.sampled_from(["a", "A", "%", "_", r"\%", r"\_", "\\\\", ".", "上", "\n"]), max_size=5).map(
    "".join
)
values = numbers | texts
leaves = (
    st.builds(ComparisonCondition, st.sampled_from(ComparisonOperator), values)
    | st.builds(InCondition, st.lists(values, min_size=1, max_size=3).map(tuple))
    | st.builds(LikeCondition, patterns)
)


def combine_conditions(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(NotCondition, inner) | st.builds(AndCondition, parts) | st.builds(OrCondition, parts)


@given(st.recursive(leaves, combine_conditions, max_leaves=6), st.lists(st.none() | values, max_size=12))
def test_columns_agree_with_single_cells(condition: Condition, cells: list[Cell]) -> None:
    """What Arrow says for a column, plain Python says cell by cell."""
    assert match_cells(condition, cells) == [cell is not None and holds(condition, cell) for cell in cells]


COMPARED = {
    ComparisonOperator.LESS: operator.lt,
    ComparisonOperator.LESS_EQUAL: operator.le,
    ComparisonOperator.GREATER: operator.gt,
    ComparisonOperator.GREATER_EQUAL: operator.ge,
}


def holds(condition: Condition, cell: float | str) -> bool:
    match condition:
        case ComparisonCondition(ComparisonOperator.EQUAL, value):
            return cell == value
        case ComparisonCondition(ComparisonOperator.NOT_EQUAL, value):
            return cell != value
        case ComparisonCondition(relation, value):
            return isinstance(cell, str) == isinstance(value, str) and COMPARED[relation](cell, value)
        case InCondition(among):
            return cell in among
        case LikeCondition(pattern):
            return isinstance(cell, str) and re.fullmatch(regex(pattern), cell, re.DOTALL) is not None
        case NotCondition(part):
            return not holds(part, cell)
        case AndCondition(parts):
            return all(holds(part, cell) for part in parts)
        case OrCondition(parts):
            return any(holds(part, cell) for part in parts)
        case _:
            assert_never(condition)


def regex(pattern: str) -> str:
    signs = {"%": ".*", "_": "."}
    return "".join(
        signs.get(part) or re.escape(part.removeprefix("\\") or part)
        for part in re.findall(r"\\[%_\\]|.", pattern, re.DOTALL)
    )
