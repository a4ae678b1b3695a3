"""Trees: the column heads and row heads of a template, read node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from excel.template.conditions import ConditionError, parse_condition
from excel.template.fields import TemplateFaultCollector, TemplateFieldReader, describe_value, render_path_step
from excel.template.models import (
    AUTOMATIC_WIDTH,
    CellKind,
    ColumnHeadNode,
    ConditionalColorsAndBold,
    ConditionalStyleRule,
    HorizontalAlign,
    RowHeadNode,
    VerticalAlign,
)
from excel.template.number_formats import find_format_fault

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
KINDS: Final = {kind.value: kind for kind in CellKind} | {
    "string": CellKind.TEXT,
    "int": CellKind.NUMBER,
    "integer": CellKind.NUMBER,
    "float": CellKind.NUMBER,
    "decimal": CellKind.NUMBER,
    "bool": CellKind.BOOLEAN,
    "url": CellKind.LINK,
    "html": CellKind.RICH,
}
_ALIGN_WORDS: Final = {align.value: align for align in HorizontalAlign}
_V_ALIGN_WORDS: Final = {align.value: align for align in VerticalAlign}


class TemplateTreeReader:
    """Reads trees and counts their nodes."""

    def __init__(self, faults: TemplateFaultCollector) -> None:
        self._faults = faults
        self._nodes = 0

    def read_columns(
        self, value: JsonValue, path: str, depth: int = 1, *, is_whole_template: bool = False
    ) -> tuple[ColumnHeadNode, ...]:
        """Read the column heads of one level, with all below them.

        Args:
            value: A list of nodes, or an object in its place.
            path: Its path.
            depth: The level, from 1.
            is_whole_template: Whether it is the whole template, where a map of texts has keys of data even if they are
                called name.
        """
        found = self._iterate_nodes(value, path, depth, COLUMN_FIELDS, is_whole_template=is_whole_template)
        return tuple(self._read_column(fields, depth) for fields in found)

    def read_rows(self, value: JsonValue, path: str, depth: int = 1) -> tuple[RowHeadNode, ...]:
        """Read the row heads of one level, with all below them."""
        return tuple(self._read_row(fields, depth) for fields in self._iterate_nodes(value, path, depth, ROW_FIELDS))

    def _read_column(self, fields: TemplateFieldReader, depth: int) -> ColumnHeadNode:
        fields.add_unknown_field_faults(COLUMN_FIELDS, "a column")
        name, title = self._read_name_and_title(fields)
        children = self.read_columns(fields.get_value("children"), f"{fields.path}.children", depth + 1)
        return ColumnHeadNode(
            path=fields.path,
            name=None if children else name,
            title=title,
            kind=fields.read_choice("type", KINDS) or CellKind.AUTO,
            number_format=_read_number_format(fields),
            width=_read_width(fields),
            height=fields.read_number("height", 1, HEIGHT_MAX_POINTS, "points"),
            wrap=fields.read_flag("wrap"),
            align=fields.read_choice("align", _ALIGN_WORDS),
            v_align=_read_v_align(fields),
            color=fields.read_color("color"),
            bold=fields.read_flag("bold"),
            bg_color=fields.read_background_or_flag("bg_color"),
            rules=self._read_rules(fields),
            children=children,
        )

    def _read_row(self, fields: TemplateFieldReader, depth: int) -> RowHeadNode:
        fields.add_unknown_field_faults(ROW_FIELDS, "a row head")
        name, title = self._read_name_and_title(fields)
        children = self.read_rows(fields.get_value("children"), f"{fields.path}.children", depth + 1)
        if children and fields.get_value("row_count") is not None:
            fields.add_fault("row_count", "a group has the rows of its children; leave it out.")
        return RowHeadNode(
            path=fields.path,
            name=None if children else name,
            title=title,
            bg_color=fields.read_background_or_flag("bg_color"),
            row_count=1 if children else fields.read_count("row_count", ROW_COUNT_MAX, default=1),
            children=children,
        )

    def _iterate_nodes(
        self, value: JsonValue, path: str, depth: int, known: tuple[str, ...], *, is_whole_template: bool = False
    ) -> Iterator[TemplateFieldReader]:
        """Yield the nodes of one level, up to the limit."""
        nodes = list(self._iterate_objects(value, path, known, is_whole_template=is_whole_template))
        if nodes and depth > DEPTH_MAX:
            self._faults.add_fault(path, f"it is level {depth}; a tree of heads may have {DEPTH_MAX}.")
            return
        for node_path, values in nodes:
            self._nodes += 1
            if self._nodes > NODES_MAX:
                if self._nodes == NODES_MAX + 1:
                    self._faults.add_fault(node_path, f"it is one node too many; a template may have {NODES_MAX:,}.")
                return
            yield TemplateFieldReader(values, node_path, self._faults)

    def _iterate_objects(
        self, value: JsonValue, path: str, known: tuple[str, ...], *, is_whole_template: bool
    ) -> Iterator[tuple[str, dict[str, JsonValue]]]:
        """Yield the nodes of one level as objects; they come as a list, a map of keys, or a single node."""
        match value:
            case None | "":
                return
            case list():
                items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
            case dict() if _is_single_node_and_no_map(value, known, is_whole_template=is_whole_template):
                items = [(path, value)]
            case dict():
                items = [
                    (path + render_path_step(key), _convert_entry_to_node(key, item)) for key, item in value.items()
                ]
            case _:
                self._faults.add_fault(path, f"it is {describe_value(value)}; send a list of nodes.")
                return
        for node_path, item in items:
            if isinstance(item, dict):
                yield node_path, item
            else:
                self._faults.add_fault(
                    node_path, f'it is {describe_value(item)}; send a node such as {{"name": "id", "title": "No."}}.'
                )

    def _read_name_and_title(self, fields: TemplateFieldReader) -> tuple[str | None, str]:
        """Read the name and title of a node; the name is the default of the title."""
        if fields.get_value("name") in (None, NO_NAME) and fields.get_value("title") is None:
            self._faults.add_fault(fields.path, "it has neither name nor title; send at least one of them.")
        name, title = fields.read_text("name"), fields.read_text("title")
        name = None if name == NO_NAME else name
        return name, title if title is not None else name or ""

    def _read_rules(self, fields: TemplateFieldReader) -> tuple[ConditionalStyleRule, ...]:
        rules = []
        for index, (path, item) in enumerate(fields.iterate_list_or_single_value("condition_style")):
            if index == RULES_MAX:
                self._faults.add_fault(path, f"it is one style too many; a node may have {RULES_MAX}.")
                break
            if not isinstance(item, dict):
                self._faults.add_fault(
                    path, f'it is {describe_value(item)}; send one such as {{"condition": "< 0", "color": "red"}}.'
                )
                continue
            rule = _read_style_rule(TemplateFieldReader(item, path, self._faults))
            rules += [rule] if rule else []
        return tuple(rules)


def _is_single_node_and_no_map(value: dict[str, JsonValue], known: tuple[str, ...], *, is_whole_template: bool) -> bool:
    """Return whether an object is a single node and not a map: it has what a map cannot have."""
    if "name" not in value and "title" not in value:
        return False
    if not all(_can_be_entry_of_node_map(key, item) for key, item in value.items()):
        return True
    return not is_whole_template and value.keys() <= set(known)


def _can_be_entry_of_node_map(key: str, item: JsonValue) -> bool:
    match item:
        case None | str() | []:  # PHP writes an empty map as []
            return True
        case dict():
            return key not in _TREES
        case _:
            return False


def _convert_entry_to_node(key: str, item: JsonValue) -> JsonValue:
    """Return an entry of a map as a node."""
    match item:
        case None | str():
            return {"name": key, "title": item}
        case []:  # an empty map, as PHP writes it
            return {"name": key}
        case dict() if item.get("name") in (None, ""):
            return item | {"name": key}
        case _:
            return item


def _read_number_format(fields: TemplateFieldReader) -> str | None:
    text = fields.read_text("format")
    sentence = find_format_fault(text) if text is not None else None
    if sentence is not None:
        fields.add_fault("format", sentence)
        return None
    return text


def _read_width(fields: TemplateFieldReader) -> float | None:
    return fields.read_number("width", 1, WIDTH_MAX_CHARACTERS, "characters", automatic_value=int(AUTOMATIC_WIDTH))


def _read_v_align(fields: TemplateFieldReader) -> VerticalAlign | None:
    given = [name for name in _V_ALIGNS if fields.get_value(name) is not None]
    if len(given) > 1:
        fields.add_fault(given[1], f"it is another word for {given[0]}, which is there, too; send one of them.")
    return fields.read_choice(given[0], _V_ALIGN_WORDS) if given else None


def _read_style_rule(fields: TemplateFieldReader) -> ConditionalStyleRule | None:
    fields.add_unknown_field_faults(_RULE_FIELDS, "a conditional style")
    look = ConditionalColorsAndBold(
        fields.read_color("color"), fields.read_flag("bold"), fields.read_background_or_flag("bg_color")
    )
    text = fields.get_value("condition")
    if not isinstance(text, str):
        found = "missing" if text is None else describe_value(text)
        fields.add_fault("condition", f"it is {found}; send one such as >=0 or <=-10.")
        return None
    try:
        return ConditionalStyleRule(parse_condition(text), look)
    except ConditionError as error:
        fields.add_fault("condition", f"{error}.")
        return None
