"""Reading templates: what callers and sources send, in all its forms, becomes a Template, or every fault is told."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import JsonValue

from excel.template.fields import Faults, Fields, TemplateFaults, shown
from excel.template.models import ROW_HEAD_NAMES, Chart, ChartKind, Node, RowNode, Template
from excel.template.trees import Trees

__all__ = ["TemplateFaults", "read_template", "says_nothing"]

CHARTS_MAX: Final = 20
CHART_VALUES_MAX: Final = 255
CHART_TITLE_MAX_CHARACTERS: Final = 255
RESERVED_ROWS_MAX: Final = 1_000_000
"""Of all row heads together: what one sheet has room for."""

_REGIONS: Final = ("col", "ceil", "row", "charts")
_CHART_FIELDS: Final = ("type", "title", "categories", "values")
_CHART_KINDS: Final = {kind.value: kind for kind in ChartKind}


def says_nothing(value: JsonValue) -> bool:
    """Whether no template was sent: some languages send an empty list, object or text for nothing."""
    return value is None or value in ("", [], {})


def read_template(value: JsonValue, at: str = "template") -> Template:
    """Read a template in any of its forms.

    Args:
        value: A map of keys to titles, a list of nodes, or an object of `col` (or `ceil`), `row` and `charts`.
        at: What the paths in faults begin with.

    Raises:
        TemplateFaults: Everything that is wrong with it.
    """
    faults = Faults()
    template = _template(value, at, faults)
    faults.settle()
    return template


def _template(value: JsonValue, at: str, faults: Faults) -> Template:
    trees = Trees(faults)
    if not isinstance(value, dict) or not any(isinstance(value.get(region), (dict, list)) for region in _REGIONS):
        columns = trees.columns(value, at, top=True)
        _require_columns(columns, at, faults)
        return Template(columns)
    fields = Fields(value, at, faults)
    fields.only(_REGIONS, "a template of col, row and charts")
    word = _column_word(fields)
    columns = trees.columns(fields.get(word), f"{at}.{word}")
    rows = trees.rows(fields.get("row"), f"{at}.row")
    row_head, columns = _without_row_head(columns, faults) if rows else (None, columns)
    if fields.get(word) is not None:
        _require_columns(columns, f"{at}.{word}", faults)
    _check_rows(rows, at, faults)
    keys = dict.fromkeys(Template(columns).keys)
    return Template(columns, rows, row_head, tuple(_charts(fields, keys, faults)))


def _column_word(fields: Fields) -> str:
    """Under which of its two names the column heads stand."""
    given = [word for word in ("col", "ceil") if fields.get(word) is not None]
    if not given:
        fields.fault("col", "it is missing; row heads and charts need column heads, send them.")
    elif len(given) == 2:
        fields.fault("ceil", "it is another word for col, which is there, too; send one of them.")
    return given[0] if given else "col"


def _require_columns(columns: Sequence[Node], path: str, faults: Faults) -> None:
    if not columns and not faults.found:
        faults.add(path, "it has no column; send at least one, or no template for keys as titles.")


def _without_row_head(columns: Sequence[Node], faults: Faults) -> tuple[Node | None, tuple[Node, ...]]:
    """The node that stands for the column of row heads, and the others."""
    row_head = next((node for node in columns if node.name in ROW_HEAD_NAMES), None)
    others = tuple(node for node in columns if node is not row_head)
    for leaf in Template(others).leaves:
        if leaf.name not in ROW_HEAD_NAMES:
            continue
        if row_head is None:
            faults.add(leaf.path, f"{leaf.name} stands for the column of row heads; move it out of its group.")
        else:
            faults.add(leaf.path, f"it stands for the column of row heads, as {row_head.path} does; leave one out.")
    if row_head is not None and row_head.title == row_head.name:
        row_head = replace(row_head, title="")
    return row_head, others


def _check_rows(rows: Sequence[RowNode], at: str, faults: Faults) -> None:
    leaves = [leaf for row in rows for leaf in row.leaves]
    first: dict[str, RowNode] = {}
    for leaf in leaves:
        if leaf.name is not None and first.setdefault(leaf.name, leaf) is not leaf:
            other = first[leaf.name].path
            faults.add(f"{leaf.path}.name", f"it is {shown(leaf.name)}, as that of {other} is; send another.")
    reserved = sum(leaf.row_count for leaf in leaves)
    if reserved > RESERVED_ROWS_MAX:
        faults.add(f"{at}.row", f"it keeps {reserved:,} rows; a sheet has room for {RESERVED_ROWS_MAX:,}.")


def _charts(fields: Fields, keys: Collection[str], faults: Faults) -> Iterator[Chart]:
    for place, (path, item) in enumerate(fields.listed("charts")):
        if place == CHARTS_MAX:
            faults.add(path, f"it is one chart too many; a template may have {CHARTS_MAX}.")
            return
        if not isinstance(item, dict):
            faults.add(path, f'it is {shown(item)}; send a chart such as {{"type": "line", "values": ["amount"]}}.')
            continue
        chart = _chart(Fields(item, path, faults), keys, faults)
        if chart is not None:
            yield chart


def _chart(fields: Fields, keys: Collection[str], faults: Faults) -> Chart | None:
    fields.only(_CHART_FIELDS, "a chart")
    kind = fields.choice("type", _CHART_KINDS)
    if fields.get("type") is None:
        fields.fault("type", f"it is missing; send one of {', '.join(_CHART_KINDS)}.")
    categories = fields.text("categories")
    if categories is not None:
        _check_key(categories, f"{fields.path}.categories", keys, faults)
    values = _values(fields, keys, faults)
    if kind is ChartKind.PIE and len(values) > 1:
        fields.fault("values", f"it has {len(values)} columns; a pie shows one.")
    title = fields.text("title", CHART_TITLE_MAX_CHARACTERS)
    return Chart(kind, tuple(values), categories, title) if kind else None


def _values(fields: Fields, keys: Collection[str], faults: Faults) -> list[str]:
    values = []
    for place, (path, item) in enumerate(fields.listed("values")):
        if place == CHART_VALUES_MAX:
            faults.add(path, f"it is one column too many; a chart may have {CHART_VALUES_MAX}.")
            break
        if not isinstance(item, str):
            faults.add(path, f"it is {shown(item)}; send the key of a column.")
            continue
        _check_key(item, path, keys, faults)
        values.append(item)
    if not values and fields.get("values") in (None, [], {}):
        fields.fault("values", "it is missing; send the key of a column, or several.")
    return values


def _check_key(key: str, path: str, keys: Collection[str], faults: Faults) -> None:
    if key in keys:
        return
    near = [] if faults.full else difflib.get_close_matches(key[:100], keys, 1)
    advice = f"did you mean {shown(near[0])}?" if near else f"send one of {_listed(keys)}."
    faults.add(path, f"no column has the key {shown(key)}; {advice}")


def _listed(keys: Collection[str], limit: int = 10) -> str:
    words = [shown(key) for key in islice(keys, limit)]
    return ", ".join([*words, "…"] if len(keys) > limit else words) or "the keys of the columns"
