"""Style: how a cell looks, as plain values that any writer of books can take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HEAD_COLOR: Final = "DFDFDF"
NAMED_COLORS: Final = {
    "black": "000000",
    "white": "FFFFFF",
    "red": "FF0000",
    "green": "008000",
    "blue": "0000FF",
    "yellow": "FFFF00",
    "cyan": "00FFFF",
}


class Align(StrEnum):
    """Where the text of a cell stands from left to right."""

    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


class VAlign(StrEnum):
    """Where the text of a cell stands from top to bottom."""

    TOP = "top"
    MIDDLE = "middle"
    BOTTOM = "bottom"


@dataclass(frozen=True)
class Style:
    """One look of cells; equal styles are one style of the book. Colours are six hexadecimal digits, upper case."""

    bold: bool = False
    color: str | None = None
    bg_color: str | None = None
    size: float | None = None
    align: Align = Align.CENTER
    v_align: VAlign = VAlign.MIDDLE
    number_format: str | None = None
    """As Excel writes it, e.g. `#,##0.00` or `yyyy-mm-dd`; `@` is text."""
    border: bool = False
    wrap: bool = False
    link: bool = False
