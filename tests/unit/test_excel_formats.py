"""Number formats that spreadsheet programs take are accepted, and others are refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.template.number_formats import find_format_fault


@pytest.mark.parametrize(
    "number_format",
    [
        *("General", "@", "0", "0.00", "#,##0.00", "0%", "0.00E+00", "# ?/?", "00000"),
        *("yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "h:mm AM/PM", "[h]:mm:ss", "mm:ss.0", "dddd", "[$-804]aaaa", "m/d/yy"),
        *("yyyy年m月d日", 'yyyy"年"m"月"d"日"', "¥#,##0.00", "[$¥-804]#,##0.00", "€ 0.00"),
        *("[Red]-0;[Color10]0;[=0]-", "[>=100][Green]0;[<0][Red]0;0", "0;-0;;@", '_($* #,##0_);_($* "-"_);_(@_)'),
        *('0.00" kg"', "0\\k\\g", "[DBNum1]General", ""),
    ],
)
def test_formats_that_programs_take(number_format: str) -> None:
    """Numbers, dates, money, sections, conditions, colours and literal texts."""
    assert find_format_fault(number_format) is None


@pytest.mark.parametrize(
    ("number_format", "sentence"),
    [
        ("0 kg", '“kg” means nothing in a number format; put texts in double quotes, as in 0.00" kg".'),
        ("Y-m-d H:i:s", '“i” means nothing in a number format; put texts in double quotes, as in 0.00" kg".'),
        ("text", '“text” means nothing in a number format; put texts in double quotes, as in 0.00" kg".'),
        ('0" kg', "a double quote in it is not closed; close it."),
        ("[Red0", "a bracket in it is not closed; close it."),
        ("[grey]0", "“[grey]” is no colour, comparison or duration; correct or quote it."),
        ("0]", "it closes a bracket that was not opened; quote it."),
        ("0\\", "nothing comes after its last “\\”; add the character that is meant, or leave it out."),
        ("0_", "nothing comes after its last “_”; add the character that is meant, or leave it out."),
        ("0;0;0;@;0", "it has 5 sections; a number format has 4 at most, parted by semicolons."),
        ("0\n", "it has a character that cannot be shown; leave it out."),
        ("0\ud800", "it has a character that cannot be shown; leave it out."),
        ("0" * 256, "it has 256 characters; send 255 or less."),
    ],
)
def test_formats_that_programs_refuse(number_format: str, sentence: str) -> None:
    """A sentence says what is wrong with it."""
    assert find_format_fault(number_format) == sentence


@given(st.text(max_size=20) | st.text('0#.,;@"\\[]_*ymdhsE+-% kred', max_size=20))
def test_any_text_has_an_answer(text: str) -> None:
    """The check itself never fails, and quoting makes a format of any printable text without quotes."""
    answer = find_format_fault(text)

    assert answer is None or answer.endswith(".")
    if text.isprintable() and '"' not in text:
        assert find_format_fault(f'0"{text}"') is None
