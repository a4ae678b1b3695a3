"""Keyset pagination: a page of a list begins behind the last row of the page before, wherever that row is by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from sqlmodel import col, tuple_
from sqlmodel.sql.expression import SelectOfScalar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class SqlOrderAndAfterCondition:
    """The order of a list in a statement that is written as text, and the condition that belongs to that order.

    Args:
        columns: The columns that name a row's place; together they are unique.
        is_descending: Whether the newest, or largest, comes first.
    """

    columns: tuple[str, ...]
    is_descending: bool = True

    @property
    def order_by(self) -> str:
        """The ORDER BY clause."""
        return "ORDER BY " + ", ".join(f"{each} DESC" if self.is_descending else each for each in self.columns)

    def format_after_condition(self, *place: str) -> str:
        """The condition that a row comes behind a place, given the parameter of each column."""
        comparison = "<" if self.is_descending else ">"
        return f"({', '.join(self.columns)}) {comparison} ({', '.join(place)})"


def build_after_condition(columns: Sequence[Any], after: tuple[object, ...]) -> ColumnElement[bool]:
    """Whether a row comes behind a place, newest first."""
    return tuple_(*columns) < after


def select_page_plus_one(
    statement: SelectOfScalar[Row], columns: Sequence[Any], after: tuple[object, ...] | None, limit: int
) -> SelectOfScalar[Row]:
    """Order rows newest first, begin behind a place, and select one row more than the page has.

    The surplus row says that another page follows.

    Args:
        columns: The columns that name a row's place; together they are unique.
        after: The place of the last row of the page before; None on the first page.
    """
    if after is not None:
        statement = statement.where(build_after_condition(columns, after))
    return statement.order_by(*(col(column).desc() for column in columns)).limit(limit + 1)
