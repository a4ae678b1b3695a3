"""Conditions are parsed by a grammar, and others are refused with the place of the fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.template.conditions import (
    CONDITION_MAX_CHARACTERS,
    AndCondition,
    ComparisonCondition,
    ComparisonOperator,
    Condition,
    ConditionError,
    InCondition,
    LikeCondition,
    NotCondition,
    OrCondition,
    parse_condition,
)

ABOVE = ComparisonCondition(ComparisonOperator.GREATER, 0.0)
BELOW = ComparisonCondition(ComparisonOperator.LESS, 9.0)
LONG = "a number of more than 15 digits is a text in the file; put it in quotes"
NINE = ComparisonCondition(ComparisonOperator.EQUAL, 9.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the design's own
        (
            ">=0 or <=-10",
            OrCondition(
                (
                    ComparisonCondition(ComparisonOperator.GREATER_EQUAL, 0.0),
                    ComparisonCondition(ComparisonOperator.LESS_EQUAL, -10.0),
                )
            ),
        ),
        # operators
        (">0", ABOVE),
        ("\t<\n9 ", BELOW),
        ("=9", NINE),
        ("!= 9", ComparisonCondition(ComparisonOperator.NOT_EQUAL, 9.0)),
        ("<> 9", ComparisonCondition(ComparisonOperator.NOT_EQUAL, 9.0)),
        # values
        ("= +1.50", ComparisonCondition(ComparisonOperator.EQUAL, 1.5)),
        ("=-.5", ComparisonCondition(ComparisonOperator.EQUAL, -0.5)),
        ("= 1e3", ComparisonCondition(ComparisonOperator.EQUAL, 1000.0)),
        ("= 100000000000000000000", ComparisonCondition(ComparisonOperator.EQUAL, 1e20)),
        ("= '9'", ComparisonCondition(ComparisonOperator.EQUAL, "9")),
        ("= '007'", ComparisonCondition(ComparisonOperator.EQUAL, "007")),
        ('= "it\'s"', ComparisonCondition(ComparisonOperator.EQUAL, "it's")),
        ("= 'it''s'", ComparisonCondition(ComparisonOperator.EQUAL, "it's")),
        ('= "a ""b"""', ComparisonCondition(ComparisonOperator.EQUAL, 'a "b"')),
        ("= ''", ComparisonCondition(ComparisonOperator.EQUAL, "")),
        ("= 'and'", ComparisonCondition(ComparisonOperator.EQUAL, "and")),
        ("= 已付款", ComparisonCondition(ComparisonOperator.EQUAL, "已付款")),
        ("= a-b/c", ComparisonCondition(ComparisonOperator.EQUAL, "a-b/c")),
        (">= 2026-01-31", ComparisonCondition(ComparisonOperator.GREATER_EQUAL, "2026-01-31")),
        (">= 2026-01-31T08:00:00", ComparisonCondition(ComparisonOperator.GREATER_EQUAL, "2026-01-31T08:00:00")),
        # in and like
        ("in (1, 'b',c)", InCondition((1.0, "b", "c"))),
        ("IN(9)", InCondition((9.0,))),
        ("like 'A%'", LikeCondition("A%")),
        ("Like 5%", LikeCondition("5%")),
        (r"like '10\%'", LikeCondition(r"10\%")),
        ("not in (9)", NotCondition(InCondition((9.0,)))),
        ("not like '%x'", NotCondition(LikeCondition("%x"))),
        # what binds how
        (">0 and <9 or =9", OrCondition((AndCondition((ABOVE, BELOW)), NINE))),
        (">0 or <9 and =9", OrCondition((ABOVE, AndCondition((BELOW, NINE))))),
        (">0 AND (<9 OR =9)", AndCondition((ABOVE, OrCondition((BELOW, NINE))))),
        ("not >0 and <9", AndCondition((NotCondition(ABOVE), BELOW))),
        ("not (>0 and <9)", NotCondition(AndCondition((ABOVE, BELOW)))),
        ("not not >0", NotCondition(NotCondition(ABOVE))),
        (">0 or <9 or =9", OrCondition((ABOVE, BELOW, NINE))),
        ("((>0))", ABOVE),
    ],
)
def test_grammar(text: str, expected: Condition) -> None:
    """`or` binds less than `and`, and `and` less than `not`; words need no quotes, keywords no case."""
    assert parse_condition(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at the end: expected a comparison such as > 0"),
        ("  ", "at the end: expected a comparison such as > 0"),
        ("5", "at character 1 (“5”): expected a comparison such as > 0; the cell itself is not named"),
        ("x > 5", "at character 1 (“x > 5”): expected a comparison such as > 0; the cell itself is not named"),
        ("or >5", "at character 1 (“or >5”): expected a comparison such as > 0"),
        (">", "at the end: expected a value"),
        (">0 <> >3", "at character 4 (“<> >3”): expected and, or, or the end"),
        ("=1 or <> or", "at character 10 (“or”): expected a value"),
        ("> (3)", "at character 3 (“(3)”): expected a value"),
        (">0 and", "at the end: expected a comparison such as > 0"),
        (">0 <9", "at character 4 (“<9”): expected and, or, or the end"),
        ("> 0 5", "at character 5 (“5”): expected and, or, or the end"),
        ("(>0", "at the end: expected and, or, or )"),
        (">0)", "at character 3 (“)”): expected and, or, or the end"),
        ("()", "at character 2 (“)”): expected a comparison such as > 0"),
        ("in 5", "at character 4 (“5”): expected ("),
        ("in ()", "at character 5 (“)”): expected a value"),
        ("in (1 2)", "at character 7 (“2)”): expected , or )"),
        ("in (1,", "at the end: expected a value"),
        ("like", "at the end: expected a value"),
        ("like >", "at character 6 (“>”): expected a value"),
        (r"like 'a\b'", r"at character 6 (“'a\b'”): a backslash belongs before %, _ or \ only; double it"),
        ("like 'a\\", "at character 6 (“'a\\”): the quote that begins here does not end"),
        ("= 'a", "at character 3 (“'a”): the quote that begins here does not end"),
        ("= \"a'", "at character 3 (“\"a'”): the quote that begins here does not end"),
        ("=‘a’", "at character 2 (“‘a’”): this sign means nothing here; put texts in straight quotes"),
        ("＞5", "at character 1 (“＞5”): this sign means nothing here; put texts in straight quotes"),
        ("!5", "at character 1 (“!5”): this sign means nothing here; put texts in straight quotes"),
        ("== 5", "at character 2 (“= 5”): expected a value"),
        ("= 10%", "at character 3 (“10%”): this is no number; put a text in quotes"),
        ("= 007", "at character 3 (“007”): this is no number; put a text in quotes"),
        ("= 1,000", "at character 4 (“,000”): expected and, or, or the end"),
        ("= 2026-01-31T08:00Z", "at character 3 (“2026-01-31T08:00Z”): this is no number; put a text in quotes"),
        ("= -", "at character 3 (“-”): this is no number; put a text in quotes"),
        ("= 1e999", "at character 3 (“1e999”): expected a number below 1.8e308"),
        ("= 1234567890.123456", f"at character 3 (“1234567890.123456”): {LONG}"),
        ("=5 " + "x" * 30, f"at character 4 (“{'x' * 20}…”): expected and, or, or the end"),
        ("(" * 51 + ">0", f"at character 51 (“{'('}>0”): expected at most 50 levels of ( and not"),
        ("=\ud800 5", "at character 4 (“5”): expected and, or, or the end"),
        ("\ud800", "at character 1 (“?”): expected a comparison such as > 0; the cell itself is not named"),
    ],
)
def test_faults_have_their_place(text: str, sentence: str) -> None:
    """The position counts from one, and the text there is shown."""
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)

    assert str(caught.value) == sentence


def test_length_is_bounded() -> None:
    """A thousand characters are read, not one more."""
    full = f"in (1{',1' * 497})"
    assert len(full) == CONDITION_MAX_CHARACTERS
    assert parse_condition(full) == InCondition((1.0,) * 498)

    with pytest.raises(
        ConditionError, match=r"at character 1001 \(“ ”\): expected the end, as a condition has at most"
    ):
        parse_condition(f"{full} ")


def test_depth_is_bounded() -> None:
    """Fifty levels are more than people write, and fewer than exhaust the stack."""
    assert parse_condition("(" * 49 + ">0" + ")" * 49) == ABOVE

    for deeper in ("(" * 900, "not " * 200, "not(" * 200):
        with pytest.raises(ConditionError, match="50 levels"):
            parse_condition(deeper)


pieces = st.sampled_from(
    ["and", "or", "not", "in", "like", "(", ")", ",", ">", "<=", "!", "'", '"', "5", "a", "%", "\\"]
)


@given(st.text() | st.lists(pieces | st.text(max_size=2), max_size=12).map(" ".join))
def test_any_text_is_a_condition_or_has_a_fault(text: str) -> None:
    """Nothing else is ever raised, and the place lies within the text."""
    try:
        parse_condition(text)
    except ConditionError as error:
        place = error.position
    else:
        place = 0

    assert 0 <= place <= len(text)
