"""Columns: the columns of data from left to right, each with all that it inherits from its groups and the book."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from excel.template.conditions import Condition
from excel.template.drawing import Drawing
from excel.template.models import AUTOMATIC_WIDTH, Kind, Look, Node, Rule, Template
from excel.template.style import Align, Style, VAlign

DATE_FORMAT: Final = "yyyy-mm-dd"
DATETIME_FORMAT: Final = "yyyy-mm-dd hh:mm:ss"
TEXT_FORMAT: Final = "@"

_FORMATS = {Kind.TEXT: TEXT_FORMAT, Kind.DATE: DATE_FORMAT, Kind.DATETIME: DATETIME_FORMAT}
_T = TypeVar("_T")
_WRAPPED = (Kind.AUTO, Kind.TEXT, Kind.RICH)


@dataclass(frozen=True)
class Column:
    """One column of data."""

    key: str
    """The key of the data; empty if there is none, and all its cells are empty."""
    title: str
    kind: Kind
    style: Style
    looks: tuple[tuple[Condition, Style], ...] = ()
    """The whole style of a cell where a condition holds; the first that holds wins."""
    width: float | None = None
    """In characters; None is fitted to the data."""
    height: float | None = None
    """Of the rows of data, in points, the least that they have; None is left to Excel."""


def columns_of(template: Template | None, keys: Sequence[str], drawing: Drawing) -> list[Column]:
    """The columns of a template, or without one a column for each key; those of the row heads are not among them.

    A leaf whose name is none of the keys is a column without data.
    """
    if template is None:
        return [_column(Node(path="", name=key, title=key), keys, drawing) for key in keys]
    leaves = (leaf for node in template.columns for leaf in _resolved(node))
    return [_column(leaf, keys, drawing) for leaf in leaves]


def _resolved(node: Node) -> Iterator[Node]:
    """The leaves under a node, each saying all that its ancestors say and it does not."""
    if not node.children:
        yield node
    for child in node.children:
        yield from _resolved(_inheriting(child, node))


def _inheriting(child: Node, parent: Node) -> Node:
    return replace(
        child,
        kind=parent.kind if child.kind is Kind.AUTO else child.kind,
        number_format=_first(child.number_format, parent.number_format),
        width=_first(child.width, parent.width),
        height=_first(child.height, parent.height),
        wrap=_first(child.wrap, parent.wrap),
        align=_first(child.align, parent.align),
        v_align=_first(child.v_align, parent.v_align),
        color=_first(child.color, parent.color),
        bold=_first(child.bold, parent.bold),
        bg_color=_first(child.bg_color, parent.bg_color),
        rules=child.rules + parent.rules,
    )


def _column(leaf: Node, keys: Sequence[str], drawing: Drawing) -> Column:
    width = _first(leaf.width, drawing.width)
    if width == AUTOMATIC_WIDTH:
        width = None
    # A fitted column shows its texts; one of a given width would cut them off.
    wraps = leaf.kind is Kind.RICH or (width is not None and leaf.kind in _WRAPPED)
    style = Style(
        bold=bool(leaf.bold),
        color=leaf.color,
        bg_color=leaf.bg_color,
        align=leaf.align or drawing.align or Align.CENTER,
        v_align=leaf.v_align or VAlign.MIDDLE,
        number_format=leaf.number_format or _FORMATS.get(leaf.kind),
        border=True,
        wrap=wraps if leaf.wrap is None else leaf.wrap,
        link=leaf.kind is Kind.LINK,
    )
    return Column(
        key=leaf.name if leaf.name in keys and leaf.name is not None else "",
        title=leaf.title,
        kind=leaf.kind,
        style=style,
        looks=tuple((rule.condition, looking(style, rule.look)) for rule in _unique(leaf.rules)),
        width=width,
        height=_first(leaf.height, drawing.height),
    )


def looking(style: Style, look: Look) -> Style:
    """A style with what a condition changes of it."""
    return replace(
        style,
        color=_first(look.color, style.color),
        bold=style.bold if look.bold is None else look.bold,
        bg_color=_first(look.bg_color, style.bg_color),
    )


def _unique(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys(rules))


def _first(own: _T | None, inherited: _T | None) -> _T | None:
    return inherited if own is None else own
