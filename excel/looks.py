"""Looks: which style each cell of a column has, by its form and by the first condition that holds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from excel import values as reading
from excel.columns import DATE_FORMAT, DATETIME_FORMAT, Column
from excel.forms import Form, Values
from excel.matching import matches
from excel.stylesheet import StyleSheet
from excel.template.models import Kind
from excel.template.style import Style

Places: TypeAlias = npt.NDArray[np.intp]

# What is quoted, escaped or in brackets are no codes; the word General has none either.
_NO_CODES = re.compile(r'"[^"]*"|\\.|[_*].|\[[^]]*\]|general', re.IGNORECASE)
_DATE_CODES = re.compile("[ymdhs]", re.IGNORECASE)


class Looks:
    """The looks of one column: its own, and one for each of its conditions. Each has a style for every form.

    Cells with line breaks in a column that does not wrap have styles of their own. A book gets them when the first such
    cell is met, so that books without are as they would be without them.
    """

    def __init__(self, column: Column, styles: StyleSheet) -> None:
        self._conditions = [condition for condition, _ in column.looks]
        self._own = (column.style, *(style for _, style in column.looks))
        self._kind = column.kind
        self._styles = styles
        self._numbers = [[styles.index(_style(style, column.kind, form)) for form in Form] for style in self._own]
        self._wrapping: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def style(self, look: int, form: Form) -> int:
        """The number of the style of a cell."""
        return self._numbers[look][form]

    def wrapping_style(self, look: int) -> int:
        """The number of the style of a text with line breaks. Only one thread at a time may ask."""
        if not self._wrapping:
            styles = (_style(replace(style, wrap=True), self._kind, Form.TEXT) for style in self._own)
            self._wrapping = [self._styles.index(style) for style in styles]
        return self._wrapping[look]

    def of(self, values: Values) -> Places | None:
        """The look of each cell; None if all have the column's own, which is look 0."""
        if not self._conditions:
            return None
        numbers, texts = reading.asked(values)
        looks = np.zeros(len(values.forms), np.intp)
        # The last one first: the first one that holds has the last word.
        for look, condition in reversed(list(enumerate(self._conditions, start=1))):
            looks[matches(condition, numbers, texts).to_numpy(zero_copy_only=False)] = look
        return looks if looks.any() else None


def _style(style: Style, kind: Kind, form: Form) -> Style:
    """How a cell of a form looks in a column of a kind."""
    if kind is Kind.LINK and form is not Form.LINK:
        style = replace(style, link=False)
    shows_dates = style.number_format is not None and _is_of_dates(style.number_format)
    if form in (Form.DAY, Form.MOMENT) and not shows_dates:
        return replace(style, number_format=DATE_FORMAT if form is Form.DAY else DATETIME_FORMAT)
    if form is Form.NUMBER and shows_dates and kind in (Kind.DATE, Kind.DATETIME):
        # A number is no date, and shown as one it would be any date or none.
        return replace(style, number_format=None)
    return style


def _is_of_dates(number_format: str) -> bool:
    return _DATE_CODES.search(_NO_CODES.sub("", number_format)) is not None
