"""Reading: parse a template in all its forms, and report all faults of templates, of tables and of names of sheets."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import JsonValue

from excel.template.fields import (
    TemplateFaultCollector,
    TemplateFaults,
    TemplateFieldReader,
    describe_value,
    render_path_step,
)
from excel.template.models import (
    ROW_HEAD_NAMES,
    ChartKind,
    ChartOfTemplate,
    ColumnHeadNode,
    RowHeadNode,
    TableTemplate,
    TableTextsAndTemplate,
)
from excel.template.trees import TemplateTreeReader

CHARTS_MAX: Final = 20
CHART_VALUES_MAX: Final = 255
CHART_TITLE_MAX_CHARACTERS: Final = 255
RESERVED_ROWS_MAX: Final = 1_000_000
"""Of all row heads together: what one sheet can hold."""

_REGIONS: Final = ("col", "ceil", "row", "charts")
_CHART_FIELDS: Final = ("type", "title", "categories", "values")
_CHART_KINDS: Final = {kind.value: kind for kind in ChartKind}


def is_empty_template(value: JsonValue) -> bool:
    """Return whether no template was sent: some languages send an empty list, object or text for none."""
    return value is None or value in ("", [], {})


def read_template(value: JsonValue, at: str = "template") -> TableTemplate:
    """Read a template in any of its forms.

    Args:
        value: A map of keys to titles, a list of nodes, or an object of `col` (or `ceil`), `row` and `charts`.
        at: The beginning of the paths in faults.

    Raises:
        TemplateFaults: The template has faults; all are reported at once.
    """
    faults = TemplateFaultCollector()
    template = _read_template_object(value, at, faults)
    faults.raise_if_any_fault()
    return template


def _read_template_object(value: JsonValue, at: str, faults: TemplateFaultCollector) -> TableTemplate:
    trees = TemplateTreeReader(faults)
    if not isinstance(value, dict) or not any(isinstance(value.get(region), (dict, list)) for region in _REGIONS):
        columns = trees.read_columns(value, at, is_whole_template=True)
        _add_fault_if_no_columns(columns, at, faults)
        return TableTemplate(columns)
    fields = TemplateFieldReader(value, at, faults)
    fields.add_unknown_field_faults(_REGIONS, "a template of col, row and charts")
    word = _choose_name_of_column_field(fields)
    columns = trees.read_columns(fields.get_value(word), f"{at}.{word}")
    rows = trees.read_rows(fields.get_value("row"), f"{at}.row")
    row_head, columns = _separate_row_head_column(columns, faults) if rows else (None, columns)
    if fields.get_value(word) is not None:
        _add_fault_if_no_columns(columns, f"{at}.{word}", faults)
    _add_row_head_faults(rows, at, faults)
    keys = dict.fromkeys(TableTemplate(columns).keys)
    return TableTemplate(columns, rows, row_head, tuple(_read_charts(fields, keys, faults)))


def _choose_name_of_column_field(fields: TemplateFieldReader) -> str:
    """Return which of its two names the region of column heads has."""
    given = [word for word in ("col", "ceil") if fields.get_value(word) is not None]
    if not given:
        fields.add_fault("col", "it is missing; row heads and charts need column heads, send them.")
    elif len(given) == 2:
        fields.add_fault("ceil", "it is another word for col, which is there, too; send one of them.")
    return given[0] if given else "col"


def _add_fault_if_no_columns(columns: Sequence[ColumnHeadNode], path: str, faults: TemplateFaultCollector) -> None:
    if not columns and not faults.has_faults:
        faults.add_fault(path, "it has no column; send at least one, or no template for keys as titles.")


def _separate_row_head_column(
    columns: Sequence[ColumnHeadNode], faults: TemplateFaultCollector
) -> tuple[ColumnHeadNode | None, tuple[ColumnHeadNode, ...]]:
    """Return the node that represents the column of row heads, and the other nodes."""
    row_head = next((node for node in columns if node.name in ROW_HEAD_NAMES), None)
    others = tuple(node for node in columns if node is not row_head)
    for leaf in TableTemplate(others).leaves:
        if leaf.name not in ROW_HEAD_NAMES:
            continue
        if row_head is None:
            faults.add_fault(leaf.path, f"{leaf.name} represents the column of row heads; move it out of its group.")
        else:
            faults.add_fault(
                leaf.path, f"it represents the column of row heads, as {row_head.path} does; leave one out."
            )
    if row_head is not None and row_head.title == row_head.name:
        row_head = replace(row_head, title="")
    return row_head, others


def _add_row_head_faults(rows: Sequence[RowHeadNode], at: str, faults: TemplateFaultCollector) -> None:
    leaves = [leaf for row in rows for leaf in row.leaves]
    first: dict[str, RowHeadNode] = {}
    for leaf in leaves:
        if leaf.name is not None and first.setdefault(leaf.name, leaf) is not leaf:
            other = first[leaf.name].path
            faults.add_fault(
                f"{leaf.path}.name", f"it is {describe_value(leaf.name)}, as that of {other} is; send another."
            )
    reserved = sum(leaf.row_count for leaf in leaves)
    if reserved > RESERVED_ROWS_MAX:
        faults.add_fault(f"{at}.row", f"it keeps {reserved:,} rows; a sheet can hold {RESERVED_ROWS_MAX:,}.")


def _read_charts(
    fields: TemplateFieldReader, keys: Collection[str], faults: TemplateFaultCollector
) -> Iterator[ChartOfTemplate]:
    for place, (path, item) in enumerate(fields.iterate_list_or_single_value("charts")):
        if place == CHARTS_MAX:
            faults.add_fault(path, f"it is one chart too many; a template may have {CHARTS_MAX}.")
            return
        if not isinstance(item, dict):
            faults.add_fault(
                path, f'it is {describe_value(item)}; send a chart such as {{"type": "line", "values": ["amount"]}}.'
            )
            continue
        chart = _read_chart(TemplateFieldReader(item, path, faults), keys, faults)
        if chart is not None:
            yield chart


def _read_chart(
    fields: TemplateFieldReader, keys: Collection[str], faults: TemplateFaultCollector
) -> ChartOfTemplate | None:
    fields.add_unknown_field_faults(_CHART_FIELDS, "a chart")
    kind = fields.read_choice("type", _CHART_KINDS)
    if fields.get_value("type") is None:
        fields.add_fault("type", f"it is missing; send one of {', '.join(_CHART_KINDS)}.")
    categories = fields.read_text("categories")
    if categories is not None:
        _add_unknown_key_fault(categories, f"{fields.path}.categories", keys, faults)
    values = _read_chart_values(fields, keys, faults)
    if kind is ChartKind.PIE and len(values) > 1:
        fields.add_fault("values", f"it has {len(values)} columns; a pie shows one.")
    title = fields.read_text("title", CHART_TITLE_MAX_CHARACTERS)
    return ChartOfTemplate(kind, tuple(values), categories, title) if kind else None


def _read_chart_values(fields: TemplateFieldReader, keys: Collection[str], faults: TemplateFaultCollector) -> list[str]:
    values = []
    for place, (path, item) in enumerate(fields.iterate_list_or_single_value("values")):
        if place == CHART_VALUES_MAX:
            faults.add_fault(path, f"it is one column too many; a chart may have {CHART_VALUES_MAX}.")
            break
        if not isinstance(item, str):
            faults.add_fault(path, f"it is {describe_value(item)}; send the key of a column.")
            continue
        _add_unknown_key_fault(item, path, keys, faults)
        values.append(item)
    if not values and fields.get_value("values") in (None, [], {}):
        fields.add_fault("values", "it is missing; send the key of a column, or several.")
    return values


def _add_unknown_key_fault(key: str, path: str, keys: Collection[str], faults: TemplateFaultCollector) -> None:
    if key in keys:
        return
    near = [] if faults.is_full else difflib.get_close_matches(key[:100], keys, 1)
    advice = f"did you mean {describe_value(near[0])}?" if near else f"send one of {_join_keys_with_ellipsis(keys)}."
    faults.add_fault(path, f"no column has the key {describe_value(key)}; {advice}")


def _join_keys_with_ellipsis(keys: Collection[str], limit: int = 10) -> str:
    words = [describe_value(key) for key in islice(keys, limit)]
    return ", ".join([*words, "…"] if len(keys) > limit else words) or "the keys of the columns"


PAIRS_MAX: Final = 100
NAME_MAX_CHARACTERS: Final = 200
TEXT_MAX_CHARACTERS: Final = 8_000
TEMPLATE_MAX_CHARACTERS: Final = 100_000

_ALLOWED_HEADER = "an object of names and values, or an array of such rows"

FieldPath = Callable[[str], str]
"""Returns the path of a field of the table in the request."""


def find_table_faults(table: TableTextsAndTemplate, path: FieldPath = str) -> list[str]:
    """Return everything that keeps a table from being drawn, each with its path: `footer[1].签名: …`."""
    found = [*_find_name_value_pair_faults(table.header, path("header"), _ALLOWED_HEADER)]
    if isinstance(table.footer, str):
        found += _find_length_fault(table.footer, path("footer"))
    else:
        found += _find_name_value_pair_faults(table.footer, path("footer"), f"a text, {_ALLOWED_HEADER}")
    return found + _find_template_faults(table.template, path("template"))


def find_unreadable_template_faults(template: JsonValue, at: str) -> list[str]:
    """Return what keeps a value from being read as a template at all."""
    if is_empty_template(template):
        return []
    if not isinstance(template, (dict, list)):
        return [f"{at}: it is neither an object nor an array; send a tree of column heads."]
    length = len(json.dumps(template, ensure_ascii=False))
    if length > TEMPLATE_MAX_CHARACTERS:
        return [f"{at}: it has {length:,} characters; send {TEMPLATE_MAX_CHARACTERS:,} or less."]
    return []


def _find_template_faults(template: JsonValue, at: str) -> list[str]:
    if is_empty_template(template):
        return []
    if unreadable := find_unreadable_template_faults(template, at):
        return unreadable
    try:
        read_template(template, at)
    except TemplateFaults as found:
        return found.faults
    return []


def _find_name_value_pair_faults(value: JsonValue, at: str, allowed: str) -> Iterator[str]:
    rows: dict[str, JsonValue]
    match value:
        case None | "":
            return
        case dict():
            rows = {at: value}
        case list():
            rows = {f"{at}[{index}]": row for index, row in enumerate(value)}
        case _:
            yield f"{at}: it is {describe_value(value)}; send {allowed}."
            return
    count = sum(len(row) for row in rows.values() if isinstance(row, dict))
    if count > PAIRS_MAX or len(rows) > PAIRS_MAX:
        yield f"{at}: it has {max(count, len(rows)):,} entries; send {PAIRS_MAX} or less."
        return
    for place, row in rows.items():
        if isinstance(row, dict):
            yield from _find_faults_of_name_value_row(row, place)
        else:
            yield f"{place}: it is {describe_value(row)}; send an object of names and values."


def _find_faults_of_name_value_row(row: dict[str, JsonValue], at: str) -> Iterator[str]:
    for name, value in row.items():
        if len(name) > NAME_MAX_CHARACTERS:
            yield f"{at}: a name has {len(name):,} characters; send {NAME_MAX_CHARACTERS} or less."
        elif isinstance(value, (dict, list)):
            yield f"{at}{render_path_step(name)}: it is {describe_value(value)}; send a text or a number."
        elif isinstance(value, str):
            yield from _find_length_fault(value, f"{at}{render_path_step(name)}")


def _find_length_fault(text: str, at: str) -> Iterator[str]:
    if len(text) > TEXT_MAX_CHARACTERS:
        yield f"{at}: it has {len(text):,} characters; send {TEXT_MAX_CHARACTERS:,} or less."


SHEET_NAME_MAX_UNITS: Final = 31
_FORBIDDEN_IN_SHEET_NAMES = re.compile(r"[\[\]:*?/\\\x00-\x1f\x7f\ufffe\uffff]")
_RESERVED_SHEET_NAME = "history"


def get_default_sheet_name(index: int) -> str:
    """Return the name of a sheet that was given none."""
    return f"Sheet{index + 1}"


def find_sheet_name_faults(names: Sequence[str | None]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the names of a workbook's sheets: the place of each, and a sentence."""
    taken: dict[str, int] = {}
    for index, given in enumerate(names):
        if given is not None and (sentence := _describe_sheet_name_fault(given)):
            yield index, sentence
            continue
        name = get_default_sheet_name(index) if given is None else given
        if (other := taken.setdefault(name.casefold(), index)) != index:
            yield index, f"“{name}” is the name of sheet {other + 1}, too; Excel ignores case in names."


def _describe_sheet_name_fault(name: str) -> str | None:
    units = len(name.encode("utf-16-le")) // 2
    if not 1 <= units <= SHEET_NAME_MAX_UNITS:
        return f"it has {units} characters as Excel counts them; send 1–{SHEET_NAME_MAX_UNITS}."
    if found := _FORBIDDEN_IN_SHEET_NAMES.search(name):
        shown = found[0] if found[0].isprintable() else "a control character"
        return f"“{name}” holds {shown}, which no name of a sheet may; leave out [ ] : * ? / \\ and control characters."
    if name.startswith("'") or name.endswith("'"):
        return f"“{name}” begins or ends with an apostrophe, which no name of a sheet may; leave it out."
    if name.casefold() == _RESERVED_SHEET_NAME:
        return f"“{name}” is a name that Excel keeps for itself; choose another."
    return None
