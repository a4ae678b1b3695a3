"""Trees: the column heads and row heads of a template, read node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from excel.template import conditions, formats
from excel.template.fields import Faults, Fields, shown, step
from excel.template.models import AUTOMATIC_WIDTH, Kind, Look, Node, RowNode, Rule
from excel.template.style import Align, VAlign

NODES_MAX: Final = 2_000
DEPTH_MAX: Final = 20
RULES_MAX: Final = 20
WIDTH_MAX_CHARACTERS: Final = 255
HEIGHT_MAX_POINTS: Final = 409
ROW_COUNT_MAX: Final = 100_000
NO_NAME: Final = "_"

_V_ALIGNS: Final = ("v-align", "v_align", "valign")
_TREES: Final = ("children", "condition_style")
COLUMN_FIELDS: Final = (
    *("name", "title", "type", "format", "width", "height", "wrap", "align", *_V_ALIGNS),
    *("color", "bold", "bg_color", *_TREES),
)
ROW_FIELDS: Final = ("name", "title", "bg_color", "row_count", "children")
_RULE_FIELDS: Final = ("condition", "color", "bold", "bg_color")
KINDS: Final = {kind.value: kind for kind in Kind} | {
    "string": Kind.TEXT,
    "int": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "float": Kind.NUMBER,
    "decimal": Kind.NUMBER,
    "bool": Kind.BOOLEAN,
    "url": Kind.LINK,
    "html": Kind.RICH,
}
_ALIGN_WORDS: Final = {align.value: align for align in Align}
_V_ALIGN_WORDS: Final = {align.value: align for align in VAlign}


class Trees:
    """Reads trees and keeps count of their nodes."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._nodes = 0

    def columns(self, value: JsonValue, path: str, depth: int = 1, *, top: bool = False) -> tuple[Node, ...]:
        """The column heads of one level, with all below them.

        Args:
            value: A list of nodes, or an object in its place.
            path: Where it stands.
            depth: The level, from 1.
            top: Whether it is the whole template, where a map of texts has keys of data even if they are called name.
        """
        found = self._fields(value, path, depth, COLUMN_FIELDS, top=top)
        return tuple(self._column(fields, depth) for fields in found)

    def rows(self, value: JsonValue, path: str, depth: int = 1) -> tuple[RowNode, ...]:
        """The row heads of one level, with all below them."""
        return tuple(self._row(fields, depth) for fields in self._fields(value, path, depth, ROW_FIELDS))

    def _column(self, fields: Fields, depth: int) -> Node:
        fields.only(COLUMN_FIELDS, "a column")
        name, title = self._name_and_title(fields)
        children = self.columns(fields.get("children"), f"{fields.path}.children", depth + 1)
        return Node(
            path=fields.path,
            name=None if children else name,
            title=title,
            kind=fields.choice("type", KINDS) or Kind.AUTO,
            number_format=_number_format(fields),
            width=_width(fields),
            height=fields.number("height", 1, HEIGHT_MAX_POINTS, "points"),
            wrap=fields.flag("wrap"),
            align=fields.choice("align", _ALIGN_WORDS),
            v_align=_v_align(fields),
            color=fields.color("color"),
            bold=fields.flag("bold"),
            bg_color=fields.background("bg_color"),
            rules=self._rules(fields),
            children=children,
        )

    def _row(self, fields: Fields, depth: int) -> RowNode:
        fields.only(ROW_FIELDS, "a row head")
        name, title = self._name_and_title(fields)
        children = self.rows(fields.get("children"), f"{fields.path}.children", depth + 1)
        if children and fields.get("row_count") is not None:
            fields.fault("row_count", "a group has the rows of its children; leave it out.")
        return RowNode(
            path=fields.path,
            name=None if children else name,
            title=title,
            bg_color=fields.background("bg_color"),
            row_count=1 if children else fields.count("row_count", ROW_COUNT_MAX, default=1),
            children=children,
        )

    def _fields(
        self, value: JsonValue, path: str, depth: int, known: tuple[str, ...], *, top: bool = False
    ) -> Iterator[Fields]:
        """The nodes of one level, as many as are allowed."""
        nodes = list(self._objects(value, path, known, top=top))
        if nodes and depth > DEPTH_MAX:
            self._faults.add(path, f"it is level {depth}; a tree of heads may have {DEPTH_MAX}.")
            return
        for place, values in nodes:
            self._nodes += 1
            if self._nodes > NODES_MAX:
                if self._nodes == NODES_MAX + 1:
                    self._faults.add(place, f"it is one node too many; a template may have {NODES_MAX:,}.")
                return
            yield Fields(values, place, self._faults)

    def _objects(
        self, value: JsonValue, path: str, known: tuple[str, ...], *, top: bool
    ) -> Iterator[tuple[str, dict[str, JsonValue]]]:
        """The nodes of one level as objects: of a list, of a map from keys to titles or nodes, or a single one."""
        match value:
            case None | "":
                return
            case list():
                items = [(f"{path}[{place}]", item) for place, item in enumerate(value)]
            case dict() if _is_node(value, known, top=top):
                items = [(path, value)]
            case dict():
                items = [(path + step(key), _of_map(key, item)) for key, item in value.items()]
            case _:
                self._faults.add(path, f"it is {shown(value)}; send a list of nodes.")
                return
        for place, item in items:
            if isinstance(item, dict):
                yield place, item
            else:
                self._faults.add(place, f'it is {shown(item)}; send a node such as {{"name": "id", "title": "No."}}.')

    def _name_and_title(self, fields: Fields) -> tuple[str | None, str]:
        """What a node is called; its name stands in for the title."""
        if fields.get("name") in (None, NO_NAME) and fields.get("title") is None:
            self._faults.add(fields.path, "it has neither name nor title; send at least one of them.")
        name, title = fields.text("name"), fields.text("title")
        name = None if name == NO_NAME else name
        return name, title if title is not None else name or ""

    def _rules(self, fields: Fields) -> tuple[Rule, ...]:
        rules = []
        for place, (path, item) in enumerate(fields.listed("condition_style")):
            if place == RULES_MAX:
                self._faults.add(path, f"it is one style too many; a node may have {RULES_MAX}.")
                break
            if not isinstance(item, dict):
                self._faults.add(path, f'it is {shown(item)}; send one such as {{"condition": "< 0", "color": "red"}}.')
                continue
            rule = _rule(Fields(item, path, self._faults))
            rules += [rule] if rule else []
        return tuple(rules)


def _is_node(value: dict[str, JsonValue], known: tuple[str, ...], *, top: bool) -> bool:
    """Whether an object is one node in place of a list, not a map: it has what a map cannot have."""
    if "name" not in value and "title" not in value:
        return False
    if not all(_may_be_mapped(key, item) for key, item in value.items()):
        return True
    return not top and value.keys() <= set(known)


def _may_be_mapped(key: str, item: JsonValue) -> bool:
    match item:
        case None | str() | []:
            return True
        case dict():
            return key not in _TREES
        case _:
            return False


def _of_map(key: str, item: JsonValue) -> JsonValue:
    """A value of a map as the node that it means."""
    match item:
        case None | str():
            return {"name": key, "title": item}
        case []:
            return {"name": key}
        case dict() if item.get("name") in (None, ""):
            return item | {"name": key}
        case _:
            return item


def _number_format(fields: Fields) -> str | None:
    text = fields.text("format")
    sentence = formats.fault(text) if text is not None else None
    if sentence is not None:
        fields.fault("format", sentence)
        return None
    return text


def _width(fields: Fields) -> float | None:
    return fields.number("width", 1, WIDTH_MAX_CHARACTERS, "characters", or_else=int(AUTOMATIC_WIDTH))


def _v_align(fields: Fields) -> VAlign | None:
    given = [name for name in _V_ALIGNS if fields.get(name) is not None]
    if len(given) > 1:
        fields.fault(given[1], f"it is another word for {given[0]}, which is there, too; send one of them.")
    return fields.choice(given[0], _V_ALIGN_WORDS) if given else None


def _rule(fields: Fields) -> Rule | None:
    fields.only(_RULE_FIELDS, "a conditional style")
    look = Look(fields.color("color"), fields.flag("bold"), fields.background("bg_color"))
    text = fields.get("condition")
    if not isinstance(text, str):
        found = "missing" if text is None else shown(text)
        fields.fault("condition", f"it is {found}; send one such as >=0 or <=-10.")
        return None
    try:
        return Rule(conditions.parse(text), look)
    except conditions.ConditionError as error:
        fields.fault("condition", f"{error}.")
        return None
