"""Keyset pagination: statements that are written as text page by the one mechanism."""

from __future__ import annotations

import re

from checks.tree import read_sources
from stores.keyset import SqlOrderAndAfterCondition

# A statement ends with its text. Times are cut-offs of removals: a page goes by unique keys.
BY_HAND = re.compile(
    r"(?P<column>[\w.]+(?<!_at)(?<!_time)(?:::\w+)?) [<>] (?:\$\d|:\w)(?:(?!\"\"\"|^\)).)*?ORDER BY (?P=column)\b",
    re.DOTALL | re.MULTILINE,
)


def test_a_place_is_compared_in_the_order_of_the_list() -> None:
    """Both clauses name the same columns in the same direction."""
    newest_first = SqlOrderAndAfterCondition(("t.job", "t.key"))
    by_name = SqlOrderAndAfterCondition(("name",), is_descending=False)

    assert newest_first.format_after_condition("$1", "$2") == "(t.job, t.key) < ($1, $2)"
    assert newest_first.order_by == "ORDER BY t.job DESC, t.key DESC"
    assert by_name.format_after_condition(":after") == "(name) > (:after)"
    assert by_name.order_by == "ORDER BY name"


def test_pages_by_hand_are_found() -> None:
    """The expression below sees what it is to see."""
    assert BY_HAND.search('"""\n    SELECT j.* FROM jobs j WHERE j.id < $1\n    ORDER BY j.id DESC\n"""')
    assert not BY_HAND.search('"""SELECT a WHERE id > $1"""\n"""SELECT b ORDER BY id"""')


def test_no_statement_pages_by_hand() -> None:
    """Each takes condition and order from `SqlOrderAndAfterCondition`, so that they cannot differ."""
    found = {name: each[0] for name, text in read_sources("stores").items() if (each := BY_HAND.search(text))}

    assert found == {}
