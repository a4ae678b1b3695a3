"""Conditions: the little language of conditional styles, read into a tree.

    or      = and ("or" and)*
    and     = not ("and" not)*
    not     = "not" not | "(" or ")" | ("=" | "!=" | "<>" | ">" | ">=" | "<" | "<=") value
            | "in" "(" value ("," value)* ")" | "like" value
    value   = number | 'text' | "text" | word

The left side of every comparison is the cell, so it is not written. A quote within a text is doubled.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

CONDITION_MAX_CHARACTERS: Final = 1_000
CONDITION_MAX_DEPTH: Final = 50

_KEYWORDS: Final = ("and", "or", "not", "in", "like")
_EXCERPT_CHARACTERS: Final = 20
_MAX_DIGITS: Final = 15
# A word goes on to the next space, sign or quote. Curly and full-width forms of these are slips, never words.
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator><>|[<>!]=|[<>=])
      | (?P<sign>[(),])
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<word>[^\s<>=!(),'"‘’“”（），＜＞＝！]+)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NUMBER_LIKE = re.compile(r"[+-]?\.?[0-9]|[+-]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]+)?")


class ComparisonOperator(StrEnum):
    """How a cell is compared with a value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


@dataclass(frozen=True)
class ComparisonCondition:
    """The cell has this relation to a number or a text."""

    operator: ComparisonOperator
    value: float | str


@dataclass(frozen=True)
class InCondition:
    """The cell equals one of the values."""

    values: tuple[float | str, ...]


@dataclass(frozen=True)
class LikeCondition:
    """The cell is a text of this pattern: `%` any characters, `_` one, behind a backslash themselves."""

    pattern: str


@dataclass(frozen=True)
class NotCondition:
    """The part does not hold."""

    part: Condition


@dataclass(frozen=True)
class AndCondition:
    """All parts hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class OrCondition:
    """One of the parts holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = ComparisonCondition | InCondition | LikeCondition | NotCondition | AndCondition | OrCondition
"""The parsed form of a condition such as `>=0 or <=-10`."""


class ConditionError(ValueError):
    """The text is not a valid condition.

    Args:
        text: The whole text.
        position: The place of the fault, from 0.
        expected: What would be valid there, as the end of a sentence.
    """

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.position = position
        rest = text[position:].encode(errors="replace").decode()
        if len(rest) > _EXCERPT_CHARACTERS:
            rest = rest[:_EXCERPT_CHARACTERS] + "…"
        super().__init__(f"at character {position + 1} (“{rest}”): {expected}" if rest else f"at the end: {expected}")


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The text is not valid; the message says where and what was expected.
    """
    if len(text) > CONDITION_MAX_CHARACTERS:
        raise ConditionError(
            text,
            CONDITION_MAX_CHARACTERS,
            f"expected the end, as a condition has at most {CONDITION_MAX_CHARACTERS:,} characters",
        )
    return _ConditionParser(text).parse()


@dataclass(frozen=True)
class _ConditionToken:
    kind: str
    text: str
    position: int

    @property
    def keyword(self) -> str | None:
        """The keyword, if the token is one."""
        lowered = self.text.lower()
        return lowered if self.kind == "word" and lowered in _KEYWORDS else None


class _ConditionParser:
    """Parses from left to right with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._next = self._read_token(0)

    def parse(self) -> Condition:
        condition = self._parse_or()
        if self._next.kind != "end":
            raise self._build_error("expected and, or, or the end")
        return condition

    def _parse_or(self) -> Condition:
        parts = [self._parse_and()]
        while self._next.keyword == "or":
            self._take_token_and_read_next()
            parts.append(self._parse_and())
        return parts[0] if len(parts) == 1 else OrCondition(tuple(parts))

    def _parse_and(self) -> Condition:
        parts = [self._parse_part_within_depth_limit()]
        while self._next.keyword == "and":
            self._take_token_and_read_next()
            parts.append(self._parse_part_within_depth_limit())
        return parts[0] if len(parts) == 1 else AndCondition(tuple(parts))

    def _parse_part_within_depth_limit(self) -> Condition:
        self._depth += 1
        if self._depth > CONDITION_MAX_DEPTH:
            raise self._build_error(f"expected at most {CONDITION_MAX_DEPTH} levels of ( and not")
        part = self._parse_part()
        self._depth -= 1
        return part

    def _parse_part(self) -> Condition:
        token = self._next
        match token.kind, token.keyword or token.text:
            case "word", "not":
                self._take_token_and_read_next()
                return NotCondition(self._parse_part_within_depth_limit())
            case "sign", "(":
                self._take_token_and_read_next()
                inner = self._parse_or()
                self._expect_sign(")", "expected and, or, or )")
                return inner
            case "operator", sign:
                self._take_token_and_read_next()
                return ComparisonCondition(ComparisonOperator("!=" if sign == "<>" else sign), self._parse_value())
            case "word", "in":
                self._take_token_and_read_next()
                return InCondition(self._parse_values())
            case "word", "like":
                self._take_token_and_read_next()
                return LikeCondition(self._parse_pattern())
            case (("word" | "text"), _) if not token.keyword:
                raise self._build_error("expected a comparison such as > 0; the cell itself is not named")
        raise self._build_error("expected a comparison such as > 0")

    def _parse_values(self) -> tuple[float | str, ...]:
        self._expect_sign("(", "expected (")
        values = [self._parse_value()]
        while (self._next.kind, self._next.text) == ("sign", ","):
            self._take_token_and_read_next()
            values.append(self._parse_value())
        self._expect_sign(")", "expected , or )")
        return tuple(values)

    def _parse_value(self) -> float | str:
        token = self._expect_value()
        if token.kind == "word" and _NUMBER.fullmatch(token.text):
            return self._parse_number(token)
        if token.kind == "word" and _NUMBER_LIKE.match(token.text) and not _DATE.fullmatch(token.text):
            raise ConditionError(self._text, token.position, "this is no number; put a text in quotes")
        return self._unquote(token)

    def _parse_number(self, token: _ConditionToken) -> float:
        digits = re.sub(r"[eE].*|[+.-]", "", token.text).strip("0")
        if len(digits) > _MAX_DIGITS:
            raise ConditionError(
                self._text,
                token.position,
                f"a number of more than {_MAX_DIGITS} digits is a text in the file; put it in quotes",
            )
        number = float(token.text)
        if not math.isfinite(number):
            raise ConditionError(self._text, token.position, "expected a number below 1.8e308")
        return number

    def _parse_pattern(self) -> str:
        token = self._expect_value()
        pattern = self._unquote(token)
        if re.sub(r"\\[%_\\]", "", pattern).count("\\"):
            raise ConditionError(self._text, token.position, r"a backslash belongs before %, _ or \ only; double it")
        return pattern

    def _expect_value(self) -> _ConditionToken:
        if self._next.kind not in ("word", "text") or self._next.keyword:
            raise self._build_error("expected a value")
        return self._take_token_and_read_next()

    @staticmethod
    def _unquote(token: _ConditionToken) -> str:
        if token.kind == "word":
            return token.text
        quote = token.text[0]
        return token.text[1:-1].replace(quote * 2, quote)

    def _expect_sign(self, sign: str, expected: str) -> None:
        if (self._next.kind, self._next.text) != ("sign", sign):
            raise self._build_error(expected)
        self._take_token_and_read_next()

    def _take_token_and_read_next(self) -> _ConditionToken:
        token = self._next
        self._next = self._read_token(token.position + len(token.text))
        return token

    def _read_token(self, position: int) -> _ConditionToken:
        found = _TOKEN.match(self._text, position)
        if found is None or found.lastgroup is None:
            position += len(self._text[position:]) - len(self._text[position:].lstrip())
            if self._text[position] in "'\"":
                raise ConditionError(self._text, position, "the quote that begins here does not end")
            raise ConditionError(self._text, position, "this sign means nothing here; put texts in straight quotes")
        return _ConditionToken(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))

    def _build_error(self, expected: str) -> ConditionError:
        return ConditionError(self._text, self._next.position, expected)
