"""Texts that no book can hold as they are become safe, and say so when something is lost."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xlsxwriter import Workbook

from excel.texts import choose_sheet_name, count_utf16_units, escape_xml, replace_invalid_characters, truncate_to_cell

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
ESCAPES = st.lists(
    st.sampled_from(["_x0041_", "_x", "0041_", "_", "x005F_", "\x00", "\r", "\n", "a", "<", "&", "\ud800"])
)


def parse_cells(xml: str) -> str:
    """What a reader makes of it: XML first, then each escape from left to right."""
    text = ET.fromstring(f"<t>{xml}</t>").text or ""  # noqa: S314
    return re.sub(r"_x([0-9A-Fa-f]{4})_", lambda found: chr(int(found[1], 16)), text)


@pytest.mark.parametrize(
    ("value", "xml"),
    [
        ("plain 中文 😀", "plain 中文 😀"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x00\x08\x0b\x1f\r", "_x0000__x0008__x000B__x001F__x000D_"),
        ("_x0041_", "_x005F_x0041_"),
        ("_x0041_x0042_", "_x005F_x0041_x005F_x0042_"),
        ("_x041_ _X0041_", "_x041_ _X0041_"),
        ("<a & b>", "&lt;a &amp; b&gt;"),
        ("\ud800 \udfff \ufffe \uffff", "\ufffd \ufffd \ufffd \ufffd"),
    ],
)
def test_texts_are_spelled_as_excel_spells_them(value: str, xml: str) -> None:
    """Controls are escaped, what looks like an escape is too, and what cannot be written is replaced."""
    assert escape_xml(replace_invalid_characters(value)) == xml


@given(ANY_TEXT | ESCAPES.map("".join))
def test_every_safe_text_comes_back(value: str) -> None:
    """Whatever the text, a reader finds the very same."""
    text = replace_invalid_characters(value)

    assert parse_cells(escape_xml(text)) == text
    text.encode()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a" * 32_768, "a" * 32_767),
        ("😀" * 16_384, "😀" * 16_383),
        ("a" + "😀" * 16_384, "a" + "😀" * 16_383),
        ("\n" * 254 + "a\nb", "\n" * 253 + " a b"),
    ],
)
def test_what_is_too_long_is_cut_and_told(value: str, kept: str) -> None:
    """A cell ends at 32,767 UTF-16 units, never within a character, and has 253 line feeds."""
    assert truncate_to_cell(value) == (kept, True)


@pytest.mark.parametrize("value", ["", "a" * 32_767, "😀" * 16_383 + "a", "\n" * 253])
def test_what_fits_is_left_alone(value: str) -> None:
    """At the limits nothing is lost, and nothing is reported."""
    assert truncate_to_cell(value) == (value, False)


@given(st.text(max_size=300), st.integers(1, 300))
def test_cut_texts_are_as_long_as_can_be(value: str, limit: int) -> None:
    """A cut text is a beginning of the whole, and at most one unit shorter than allowed."""
    kept, cut = truncate_to_cell(value.replace("\n", " "), limit)

    assert value.replace("\n", " ").startswith(kept)
    assert count_utf16_units(kept) <= limit
    assert cut == (count_utf16_units(value) > limit)
    assert not cut or count_utf16_units(kept) >= limit - 1


@given(st.text())
def test_lengths_are_counted_as_excel_counts(value: str) -> None:
    """In UTF-16 units."""
    assert count_utf16_units(value) == len(value.encode("utf-16-le")) // 2


@pytest.mark.parametrize(
    ("requested", "taken", "name"),
    [
        ("4月", [], "4月"),
        ("a/b:c*[d]?\\\n", [], "a b c d"),
        ("'quoted'", [], "quoted"),
        ("x" * 40, [], "x" * 31),
        ("😀" * 16, [], "😀" * 15),
        ("Sales", ["sALES", "Sales (2)"], "Sales (3)"),
        ("x" * 40, ["x" * 31], "x" * 27 + " (2)"),
        ("History", [], "History (2)"),
        (None, [], "Sheet1"),
        ("", ["a"], "Sheet2"),
        ("?*", ["a", "sheet3"], "Sheet4"),
        ("\ud800", [], "Sheet1"),
    ],
)
def test_sheet_names_are_made_to_fit(requested: str | None, taken: list[str], name: str) -> None:
    """What Excel forbids is left out, and a name that is taken gets a number."""
    assert choose_sheet_name(requested, taken) == name


@given(
    st.lists(st.none() | ANY_TEXT | st.sampled_from(["a", "A", "ß", "SS", "İ", "'", "history", "Sheet2"]), max_size=8)
)
def test_any_names_make_a_book(names: list[str | None]) -> None:
    """xlsxwriter, which knows the rules of Excel, takes them all."""
    workbook = Workbook(io.BytesIO(), {"in_memory": True})
    for requested in names:
        workbook.add_worksheet(choose_sheet_name(requested, [sheet.name for sheet in workbook.worksheets()]))
    workbook.close()
