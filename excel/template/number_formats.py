"""Number formats of a template: what spreadsheet programs refuse is found before it is in a file."""

from __future__ import annotations

import re
from typing import Final

FORMAT_MAX_CHARACTERS: Final = 255
FORMAT_MAX_SECTIONS: Final = 4

_FORMAT_COLORS: Final = r"black|blue|cyan|green|magenta|red|white|yellow|color\ ?[0-9]{1,2}"
_FORMAT_PART = re.compile(
    rf"""
        "[^"]*"                                     # a text
      | \\.                                         # one character as it is
      | [_*].                                       # space as wide as a character, or filled with it
      | \[(?:{_FORMAT_COLORS}|[<>=]{{1,2}}-?[0-9.]+|h+|m+|s+|\$[^\]]*|dbnum[1-4])\]
      | general | am/pm | a/p | e[+-] | a{{3,4}} | [ymdhsegb]+
      | [^a-z"\\_*\[\]]                             # digits, their signs, and what needs no quotes
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_OFFENDER = re.compile(r"[A-Za-z]+|.")


def find_format_fault(number_format: str) -> str | None:
    """Return why spreadsheet programs would refuse a number format, as a sentence; None if they accept it."""
    if len(number_format) > FORMAT_MAX_CHARACTERS:
        return f"it has {len(number_format):,} characters; send {FORMAT_MAX_CHARACTERS} or less."
    if _UNPRINTABLE.search(number_format):
        return "it has a character that cannot be shown; leave it out."
    position, sections = 0, 1
    while position < len(number_format):
        part = _FORMAT_PART.match(number_format, position)
        if part is None:
            return _describe_format_fault(number_format, position)
        sections += part[0] == ";"
        position = part.end()
    if sections > FORMAT_MAX_SECTIONS:
        return f"it has {sections} sections; a number format has {FORMAT_MAX_SECTIONS} at most, parted by semicolons."
    return None


def _describe_format_fault(number_format: str, position: int) -> str:
    match number_format[position]:
        case '"':
            return "a double quote in it is not closed; close it."
        case "[":
            end = number_format.find("]", position)
            if end < 0:
                return "a bracket in it is not closed; close it."
            return f"“{number_format[position : end + 1]}” is no colour, comparison or duration; correct or quote it."
        case "]":
            return "it closes a bracket that was not opened; quote it."
        case "\\" | "_" | "*" as sign:
            return f"nothing comes after its last “{sign}”; add the character that is meant, or leave it out."
        case _:
            offender = _OFFENDER.match(number_format, position)
            letters = offender[0] if offender else ""
            return f'“{letters}” means nothing in a number format; put texts in double quotes, as in 0.00" kg".'
