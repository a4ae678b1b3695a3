"""Stylesheet: the styles of a book, each once, with the number by which its cells name it."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any, Final

from xlsxwriter import Workbook
from xlsxwriter.format import Format

from excel.template.style import Style, VAlign

LINK_COLOR: Final = "0563C1"
_V_ALIGN = {VAlign.TOP: "top", VAlign.MIDDLE: "vcenter", VAlign.BOTTOM: "bottom"}


class StyleSheet:
    """The formats of a workbook. xlsxwriter numbers each when it is first asked for, and keeps the number.

    Any thread may ask: the next table is begun while rows of the last one are worked on.
    """

    def __init__(self, workbook: Workbook) -> None:
        self._workbook = workbook
        self._formats: dict[Style, Format] = {}
        self._lock = Lock()

    def format(self, style: Style) -> Format:
        """The format for cells that xlsxwriter writes."""
        if style not in self._formats:
            self._formats[style] = self._workbook.add_format(_properties(style))
        return self._formats[style]

    def index(self, style: Style) -> int:
        """The number of the style, for cells that are written without xlsxwriter."""
        with self._lock:
            return int(self.format(style)._get_xf_index())


@cache
def _properties(style: Style) -> dict[str, Any]:
    properties: dict[str, Any] = {"align": style.align.value, "valign": _V_ALIGN[style.v_align]}
    if style.bold:
        properties["bold"] = True
    if style.size is not None:
        properties["font_size"] = style.size
    if style.link:
        properties["underline"] = 1
    if color := style.color or (LINK_COLOR if style.link else None):
        properties["font_color"] = f"#{color}"
    if style.bg_color is not None:
        properties["bg_color"] = f"#{style.bg_color}"
    if style.number_format is not None:
        properties["num_format"] = style.number_format
    if style.border:
        properties["border"] = 1
    if style.wrap:
        properties["text_wrap"] = True
    return properties
