"""Keyset pagination: a page of a list begins behind the last row of the page before, wherever that row is by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from sqlmodel import col, tuple_
from sqlmodel.sql.expression import SelectOfScalar

Row = TypeVar("Row")


def is_behind(place: Sequence[Any], after: tuple[object, ...]) -> ColumnElement[bool]:
    """Whether a row comes behind a place, newest first."""
    return tuple_(*place) < after


def select_page(
    statement: SelectOfScalar[Row], place: Sequence[Any], after: tuple[object, ...] | None, limit: int
) -> SelectOfScalar[Row]:
    """Order rows newest first, begin behind a place, and select one row more than the page has.

    The surplus row says that another page follows.

    Args:
        place: The columns that name a row's place; together they are unique.
        after: The place of the last row of the page before; None on the first page.
    """
    if after is not None:
        statement = statement.where(is_behind(place, after))
    return statement.order_by(*(col(column).desc() for column in place)).limit(limit + 1)
