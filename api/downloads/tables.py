"""Tables: which tables a request asks for, each with its source and its looks, or all that does not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from yarl import URL

from api.downloads import drawings
from api.downloads.drawings import REGIONS
from api.downloads.excel import SheetRequest
from api.downloads.fields import TABLES_MAX, TableData
from api.downloads.requests import NewDownload
from api.http import parsing
from api.http.problems import FieldProblem
from domain.downloads.models import FileType
from excel.template.checking import (
    default_sheet_name,
    find_sheet_name_faults,
    find_table_faults,
    find_template_size_faults,
)
from excel.template.models import Drawing, TableArrangement, TableDrawing

_HEADERS_WITHOUT_SOURCE = "it has headers for a source, but the rows come as data; send one of them."

PAGING = frozenset({"page", "page_size"})
"""Parameters of each request for a page; twice in one request, each source would heed another one of them."""
SOURCES = ("source_url", "data", "headers")
OF_PAGES = ("first_page", "allow_repeats", "columns")
"""Fields that say how a source is asked, or what its later pages may have. `page_size` and `force_continue` are not
among them: the original knew both, and its callers send them beside rows, too."""
OF_CSV = ("encoding", "formula_guard")


@dataclass(frozen=True)
class Table:
    """One table of a request."""

    source_url: str | None
    headers: dict[str, str] | None
    data: TableData | None
    drawing: TableDrawing
    paths: dict[str, str]
    """Where its fields stand in the request."""

    @property
    def row_count(self) -> int:
        """How many rows came along."""
        data = self.data or []
        return sum(map(len, data.values())) if isinstance(data, dict) else len(data)


def of(body: NewDownload) -> list[Table]:
    """The tables that a request asks for.

    Raises:
        Refusal: What it says of them does not fit together.
    """
    if misfits := list(_misfits(body)):
        parsing.reject_fields("body", misfits)
    tables = _tables(body)
    if faults := [*_of_sources(body, tables), *_without_effect(body, tables), *_of_looks(body, tables)]:
        parsing.reject_fields("body", faults)
    return tables


def drawing(body: NewDownload, tables: list[Table]) -> Drawing:
    """How the book looks."""
    return drawings.book(body, [table.drawing for table in tables], body.multi or TableArrangement.TAB)


def _tables(body: NewDownload) -> list[Table]:
    if body.sheets is not None:
        return [_of_sheet(sheet, index) for index, sheet in enumerate(body.sheets)]
    if body.multi is not None:
        return [_of_lists(body, index) for index in range(_count(body))]
    return [_table(body, {field: field for field in SOURCES + REGIONS})]


def _of_sheet(sheet: SheetRequest, index: int) -> Table:
    paths = {field: f"sheets[{index}].{field}" for field in SOURCES + REGIONS}
    return _table(sheet, paths, sheet.name or default_sheet_name(index))


def _of_lists(body: NewDownload, index: int) -> Table:
    listed = _listed(body)
    paths = {field: f"{field}[{index}]" if field in listed else field for field in SOURCES + REGIONS}
    return _table(body, paths, **{field: values[index] for field, values in listed.items()})


def _table(said: NewDownload | SheetRequest, paths: dict[str, str], sheet: str | None = None, **own: Any) -> Table:
    values = {field: own.get(field, getattr(said, field)) for field in SOURCES + REGIONS}
    return Table(values["source_url"], values["headers"], values["data"], drawings.table(values, sheet), paths)


def _listed(body: NewDownload) -> dict[str, list[Any]]:
    """What is said of each table; beside it stand values for all of them."""
    values = {field: getattr(body, field) for field in SOURCES + REGIONS}
    return {field: value for field, value in values.items() if isinstance(value, list)}


def _count(body: NewDownload) -> int:
    return max(map(len, _listed(body).values()), default=1)


def _misfits(body: NewDownload) -> Iterator[FieldProblem]:
    """What keeps the request from being taken apart into tables."""
    if body.sheets is not None:
        named = [field for field in ("multi", *SOURCES, *REGIONS) if getattr(body, field) is not None]
        for field in named:
            yield FieldProblem(
                path=field, message="it is sent beside `sheets`; say it of each sheet, or send no sheets."
            )
        for index, sentence in find_sheet_name_faults([sheet.name for sheet in body.sheets]):
            yield FieldProblem(path=f"sheets[{index}].name", message=sentence)
    elif body.multi is not None:
        yield from _uneven(body)
    else:
        yield from _lists_alone(body)


def _uneven(body: NewDownload) -> Iterator[FieldProblem]:
    listed = _listed(body)
    count = _count(body)
    if count > TABLES_MAX:
        longest = next(field for field, values in listed.items() if len(values) == count)
        yield FieldProblem(path=longest, message=f"it has {count:,} entries; send 1–{TABLES_MAX}, one for each table.")
        return
    first = next(iter(listed), "")
    for field, values in listed.items():
        if len(values) != len(listed[first]):
            message = f"it has {len(values)} entries, and {first} has {len(listed[first])}; send one for each table."
            yield FieldProblem(path=field, message=message)
    for index, data in enumerate(listed.get("data", ())):
        if isinstance(data, dict) and not all(isinstance(rows, list) for rows in data.values()):
            message = "with `multi`, each entry is all rows of one table; send an array of rows."
            yield FieldProblem(path=f"data[{index}]", message=message)


def _lists_alone(body: NewDownload) -> Iterator[FieldProblem]:
    for field in ("source_url", "headers", "title", "summary"):
        if isinstance(getattr(body, field), list):
            yield FieldProblem(
                path=field, message="it is an array, one entry for each table; send `multi`, or one value."
            )
    if isinstance(body.data, list) and not all(isinstance(row, dict) for row in body.data):
        message = "it holds the rows of several tables; send `multi`, or the rows of one."
        yield FieldProblem(path="data", message=message)


def _of_sources(body: NewDownload, tables: list[Table]) -> Iterator[FieldProblem]:
    for index, table in enumerate(tables):
        if (table.source_url is None) == (table.data is None):
            found = "neither" if table.data is None else "both"
            place = f"table {index + 1}" if len(tables) > 1 else "it"
            yield FieldProblem(path="", message=f"{place} has {found} of source_url and data; send one of them.")
        if ours := sorted(PAGING & set(_parameters(table.source_url))):
            message = f"its query has {' and '.join(ours)}, which Haulage adds to each request; leave that out."
            yield FieldProblem(path=table.paths["source_url"], message=message)
        if isinstance(table.data, dict) and body.type is not FileType.EXCEL:
            message = "an object of row lists belongs to row heads, which only Excel has; send an array of rows."
            yield FieldProblem(path=table.paths["data"], message=message)
        if table.headers is not None and table.source_url is None and not isinstance(body.headers, dict):
            yield FieldProblem(path=table.paths["headers"], message=_HEADERS_WITHOUT_SOURCE)
    if isinstance(body.headers, dict):
        origins = sorted({_origin(table.source_url) for table in tables if table.source_url is not None})
        if not origins:
            yield FieldProblem(path="", message=_HEADERS_WITHOUT_SOURCE)
        if len(origins) > 1:
            message = f"they would go to {len(origins)} hosts ({', '.join(origins)[:200]}); send an array."
            yield FieldProblem(path="headers", message=message)
    if len(tables) > 1 and body.type is not FileType.EXCEL:
        message = f"a {body.type} file holds one table, and {len(tables)} are asked for; send excel, or ask for each."
        yield FieldProblem(path="type", message=message)


def _without_effect(body: NewDownload, tables: list[Table]) -> Iterator[FieldProblem]:
    """Fields that were sent, and that nothing of this download would heed."""
    if all(table.data is not None for table in tables):
        for field in OF_PAGES:
            if field in body.model_fields_set:
                message = "it is about the pages of a source, but the rows come as data; leave it out."
                yield FieldProblem(path=field, message=message)
    if body.type is not FileType.CSV:
        for field in OF_CSV:
            if field in body.model_fields_set:
                message = f"it is about CSV files, and the type is {body.type}; leave it out, or send csv."
                yield FieldProblem(path=field, message=message)


def _parameters(url: str | None) -> Iterable[str]:
    with suppress(ValueError):
        return URL(url or "").query.keys()
    return ()


def _origin(url: str) -> str:
    with suppress(ValueError):
        return str(URL(url).origin())
    return url


def _of_looks(body: NewDownload, tables: list[Table]) -> Iterator[FieldProblem]:
    """What is wrong with how the book shall look; for other types only what is no template at all."""
    if body.type is FileType.EXCEL:
        found = (find_table_faults(table.drawing, table.paths.__getitem__) for table in tables)
        yield from drawings.told(chain.from_iterable(found))
        yield from drawings.too_long(drawing(body, tables))
    else:
        sizes = (find_template_size_faults(table.drawing.template, table.paths["template"]) for table in tables)
        yield from drawings.told(chain.from_iterable(sizes))
