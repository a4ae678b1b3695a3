"""Columns of texts and of numbers are brought into a book as one text would be, cell by cell."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from excel.row_builder import ChunkRowsXmlBuilder, ReusableBuffer, join_rows
from excel.texts import (
    escape_column_xml,
    escape_xml,
    mask_edge_spaces,
    mask_fractions_equal_to_float_repr,
    mask_numbers_excel_can_hold,
    replace_invalid_characters,
    truncate_column_to_cells,
    truncate_to_cell,
)

AWKWARD = st.text(st.sampled_from("a&<>_x0041\x00\x1f\t\n\r￿￾\ufeff中😀"))
TEXTS = st.lists(st.one_of(st.none(), AWKWARD, st.text()))


@given(TEXTS, st.integers(0, 2))
def test_texts_are_spelled_as_a_single_one_is(cells: list[str | None], start: int) -> None:
    """In a whole column and in a part of one."""
    column = pa.array(["<"] * start + cells, pa.string()).slice(start)
    assert escape_column_xml(column).to_pylist() == [
        None if cell is None else escape_xml(replace_invalid_characters(cell)) for cell in cells
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 32_767,
        "x" * 32_768,
        "😀" * 16_383,
        "😀" * 16_384,
        "中" * 32_767,
        "中" * 32_768,
        "\n" * 253,
        "\n" * 254,
        "a\n" * 300,
        "x" * 300,
    ],
    ids=lambda text: f"{text[:2]!r}-{len(text)}",
)
def test_texts_are_cut_as_a_single_one_is(text: str) -> None:
    """And each that was is counted."""
    kept, cut = truncate_to_cell(text)
    found, count = truncate_column_to_cells(pa.array(["a", text, None, text]))
    assert found.to_pylist() == ["a", kept, None, kept]
    assert count == 2 * cut


@given(TEXTS)
def test_white_space_at_the_ends_is_noticed(cells: list[str | None]) -> None:
    """Where a reader of XML would drop it."""
    found = mask_edge_spaces(pa.array(cells, pa.string()))
    assert found.tolist() == [
        any(end <= " " for end in (cell or "x")[:: max(1, len(cell or "x") - 1)]) for cell in cells
    ]


def count_significant_digits(numeral: str) -> int:
    """The digits that Excel would have to keep."""
    number, _, exponent = numeral.lower().partition("e")
    whole, _, fraction = number.lstrip("-").partition(".")
    # Zeros at the end of a whole number may be an identifier's.
    digits = (whole + fraction).rstrip("0") if exponent else whole + fraction.rstrip("0")
    return len(digits.lstrip("0"))


NUMERALS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z")


@example(["1000000000000000.0", "100000000000000.0", "1000000000000000.0e1"], False)
@given(st.lists(NUMERALS), st.booleans())
def test_fifteen_digits_are_kept(cells: list[str], with_null: bool) -> None:
    """More are not, nor what is too large or too small for a number of 64 bits."""
    column = pa.array([*cells, None] if with_null else cells, pa.string())
    expected = [
        count_significant_digits(cell) <= 15
        and (not Decimal(cell) or abs(Decimal(cell).adjusted()) <= 307 or "e" not in cell.lower())
        for cell in cells
    ]
    assert mask_numbers_excel_can_hold(column).tolist() == expected + [True] * with_null


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_fraction_that_is_a_computers_own_number_is_told(cells: list[float]) -> None:
    """One more digit makes it another number."""
    written = [f"{Decimal(repr(cell)):f}" for cell in cells]
    fractions = [text for text in written if "." in text]
    assert mask_fractions_equal_to_float_repr(pa.array(fractions, pa.string())).all()
    longer = [f"{text}12345678901234567891" for text in fractions]
    assert not mask_fractions_equal_to_float_repr(pa.array(longer, pa.string())).any()


WORDS = st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=30)
ALIKE = st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=4), min_size=30)


@given(WORDS, ALIKE, st.one_of(st.integers(1, 120), st.integers(9_990, 10_010)))
def test_a_line_is_joined_as_plain_python_would(words: list[str | None], alike: list[str], first: int) -> None:
    """Numbers of any length, texts of one length and of any, gaps."""
    rows = len(words)
    builder = ChunkRowsXmlBuilder(first, rows)
    builder.add_text("<")
    builder.add_row_number()
    builder.add_text(">")
    builder.add_varying_texts(pa.array(words, pa.string()))
    builder.add_varying_texts(pa.array(alike[:rows], pa.string()))
    builder.begin_cell(27, ' s="1"')
    builder.add_uniform_cells(("[", "]"), pa.array(words, pa.string()))
    builder.begin_cell(0)
    builder.add_mixed_cells(np.arange(rows) % 2, [("a", "b"), ("", "")], pa.array(alike[:rows], pa.string()))
    expected = "".join(
        f'<{number}>{"/>" if word is None else word}{four}<c s="1" r="AB{number}"'
        f'{"/>" if word is None else f"[{word}]"}<c r="A{number}"' + (four if place % 2 else f"a{four}b")
        for place, (number, word, four) in enumerate(zip(range(first, first + rows), words, alike, strict=False))
    )
    assert (
        b"".join(map(join_rows, builder.build_columns_by_digits_of_row_number(ReusableBuffer()))).decode() == expected
    )
