"""Fields: the values of one object of a template, read one by one; a wrong value is noted and reads as missing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from pydantic import JsonValue

from excel.template.models import HEAD_COLOR, NAMED_COLORS

FAULTS_MAX: Final = 20
NAME_MAX_CHARACTERS: Final = 1_000

_SHOWN_CHARACTERS: Final = 60
_NEAR: Final = 0.7
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_HEX = re.compile(r"#?([0-9a-fA-F]{6}|[0-9a-fA-F]{3})")
_FLAGS: Final[dict[object, bool]] = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}

Choice = TypeVar("Choice", bound=StrEnum)


class TemplateFaults(ValueError):
    """The value is not a valid template.

    Attributes:
        faults: One sentence each, with the path of the place: the first twenty.
        count: How many there are.
    """

    def __init__(self, faults: list[str], count: int) -> None:
        self.faults = faults
        self.count = count
        more = [f"There are {count - len(faults):,} more."] if count > len(faults) else []
        super().__init__(" ".join([*faults, *more]))


class TemplateFaultCollector:
    """Collects what is wrong with a template."""

    def __init__(self) -> None:
        self._sentences: list[str] = []
        self._count = 0

    def add_fault(self, path: str, sentence: str) -> None:
        """Add one fault."""
        self._count += 1
        if not self.is_full:
            self._sentences.append(f"{path}: {sentence}".encode(errors="replace").decode())

    @property
    def is_full(self) -> bool:
        """Whether further faults are counted only."""
        return len(self._sentences) == FAULTS_MAX

    @property
    def has_faults(self) -> bool:
        """Whether any fault was added."""
        return self._count > 0

    def raise_if_any_fault(self) -> None:
        """Raise `TemplateFaults` if there is any fault."""
        if self._count:
            raise TemplateFaults(self._sentences, self._count)


class TemplateFieldReader:
    """Reads the fields of one object; null and empty texts count as missing."""

    def __init__(self, values: dict[str, JsonValue], path: str, faults: TemplateFaultCollector) -> None:
        self._values = values
        self._faults = faults
        self.path = path

    def get_value(self, name: str) -> JsonValue:
        """Return a value as it was sent."""
        value = self._values.get(name)
        return None if value == "" else value

    def add_fault(self, name: str, sentence: str) -> None:
        """Add a fault of a field."""
        self._faults.add_fault(f"{self.path}{render_path_step(name)}", sentence)

    def _add_fault_unless_missing(self, name: str, allowed: str) -> None:
        """Add a fault for a value that is not allowed, unless it is missing."""
        if self.get_value(name) is not None:
            self.add_fault(name, f"it is {describe_value(self.get_value(name))}; send {allowed}.")

    def add_unknown_field_faults(self, known: Collection[str], owner: str) -> None:
        """Add a fault for every unknown field."""
        for name in self._values:
            if name in known:
                continue
            near = (
                []
                if self._faults.is_full
                else difflib.get_close_matches(name[:_SHOWN_CHARACTERS].lower(), known, 1, _NEAR)
            )
            advice = f"did you mean {near[0]}?" if near else f"it may have {', '.join(known)}."
            self.add_fault(name, f"{owner} has no such field; {advice}")

    def read_text(self, name: str, max_characters: int = NAME_MAX_CHARACTERS) -> str | None:
        """Read a text; a number is read as its digits."""
        value = self.get_value(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = _render_number_unless_too_long(value)
        if isinstance(value, str) and len(value) > max_characters:
            self.add_fault(name, f"it has {len(value):,} characters; send {max_characters:,} or less.")
        elif value is None or isinstance(value, str):
            return value
        else:
            self._add_fault_unless_missing(name, "a text")
        return None

    def read_number(
        self, name: str, low: int, high: int, unit: str, automatic_value: int | None = None
    ) -> float | None:
        """Read a number within bounds, also written as a text, or the one outside of them that means automatic."""
        number = _parse_number(self.get_value(name))
        if number is not None and (low <= number <= high or number == automatic_value):
            return float(number)
        automatic = "" if automatic_value is None else f" or {automatic_value} (automatic)"
        self._add_fault_unless_missing(name, f"a number from {low} to {high:,} ({unit}){automatic}, or leave it out")
        return None

    def read_count(self, name: str, high: int, default: int) -> int:
        """Read a whole number from 1, also written as a text."""
        number = _parse_number(self.get_value(name))
        if number is not None and 1 <= number <= high and number == int(number):
            return int(number)
        self._add_fault_unless_missing(name, f"a whole number from 1 to {high:,}, or leave it out")
        return default

    def read_flag(self, name: str) -> bool | None:
        """Read true or false, also as 1 and 0."""
        flag = _parse_flag(self.get_value(name))
        if flag is None:
            self._add_fault_unless_missing(name, "true or false")
        return flag

    def read_color(self, name: str) -> str | None:
        """Read a colour; return six hexadecimal digits."""
        color = _parse_color(self.get_value(name))
        if color is None:
            self._add_fault_unless_missing(name, _COLORS_ALLOWED)
        return color

    def read_background_or_flag(self, name: str) -> str | None:
        """Read a colour, or true for that of heads, or false for none."""
        flag = _parse_flag(self.get_value(name))
        if flag is not None:
            return HEAD_COLOR if flag else None
        color = _parse_color(self.get_value(name))
        if color is None:
            self._add_fault_unless_missing(name, f"true, {_COLORS_ALLOWED}")
        return color

    def read_choice(self, name: str, allowed: Mapping[str, Choice]) -> Choice | None:
        """Read one of several words, in upper or lower case."""
        value = self.get_value(name)
        found = allowed.get(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            self._add_fault_unless_missing(
                name, f"one of {', '.join(dict.fromkeys(choice.value for choice in allowed.values()))}"
            )
        return found

    def iterate_list_or_single_value(self, name: str) -> Iterator[tuple[str, JsonValue]]:
        """Yield the items of a list with their paths; a single value is one item, a numbered map has its values."""
        value = self.get_value(name)
        path = f"{self.path}{render_path_step(name)}"
        match value:
            case None:
                return
            case list():
                items = [(f"[{place}]", item) for place, item in enumerate(value)]
            case dict() if all(key.isdecimal() for key in value):
                items = [(render_path_step(key), item) for key, item in value.items()]
            case _:
                items = [("", value)]
        for place, item in items:
            yield path + place, item


def render_path_step(key: str) -> str:
    """Return a field as a step of a path."""
    if len(key) <= _SHOWN_CHARACTERS and (key.isidentifier() or re.fullmatch(r"[a-z]+(?:-[a-z]+)+", key)):
        return f".{key}"
    if len(key) <= _SHOWN_CHARACTERS and key.isdecimal():
        return f"[{key}]"
    return f"[“{_shorten(key)}”]"


def describe_value(value: JsonValue) -> str:
    """Return a value as a sentence shows it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return _render_number_unless_too_long(value)
        case str():
            return f"“{_shorten(value)}”" if value else "empty"
        case dict():
            return "an object"
        case list():
            return "an array"


_COLORS_ALLOWED: Final = f"six hexadecimal digits like FF8800, or one of {', '.join(NAMED_COLORS)}"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _render_number_unless_too_long(number: float) -> str:
    # Python refuses to write out integers of thousands of digits.
    if isinstance(number, int) and number.bit_length() > 200:
        return "a number of more than 60 digits"
    return str(number)


def _parse_number(value: JsonValue) -> float | None:
    match value:
        case bool():
            return None
        case int() | float():
            return value
        case str() if _NUMBER.fullmatch(value.strip()):
            return float(value)
        case _:
            return None


def _parse_flag(value: JsonValue) -> bool | None:
    match value:
        case bool():
            return value
        case int() | str():
            return _FLAGS.get(value.strip().lower() if isinstance(value, str) else value)
        case _:
            return None


def _parse_color(value: JsonValue) -> str | None:
    if not isinstance(value, str):
        return None
    word = value.strip()
    found = _HEX.fullmatch(word)
    if found is None:
        return NAMED_COLORS.get(word.lower())
    digits = found[1].upper()
    return digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
