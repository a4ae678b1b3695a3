"""Tables of a request: the source, rows and drawing of each; or everything in the request that is inconsistent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import msgspec
from yarl import URL

from api.downloads.requests import TABLES_MAX, BookOptions, DownloadRequest, TableData, TableOnOwnSheetRequest
from api.http import parsing
from api.http.problems import FieldProblem
from api.http.routes import Call
from domain.downloads.models import FileType
from domain.faults import format_count
from excel.template.models import TablesOnOneSheetOrTabs, TableTextsAndTemplate, WorkbookLayout
from excel.template.reading import (
    find_sheet_name_faults,
    find_table_faults,
    find_unreadable_template_faults,
    get_default_sheet_name,
    is_empty_template,
)

_HEADERS_WITHOUT_SOURCE = "it has headers for a source, but the rows come as data; send one of them."

PAGING_PARAMETERS = frozenset({"page", "page_size"})
"""Query parameters that each page request sets; a URL must not contain them, as sources differ in which one they use.
"""
SOURCE_FIELDS = ("source_url", "data", "headers")
PAGE_FIELDS = ("first_page", "allow_repeats", "columns")
"""Fields about paging. `page_size` and `force_continue` are not among them, as callers of the original send them beside
rows, too."""
CSV_FIELDS = ("encoding", "formula_guard")
DRAWING_MAX_CHARACTERS = 200_000
REGIONS = ("title", "summary", "header", "footer", "template")
# A path may quote a key, which may contain anything.
_FAULT_TEXT = re.compile(r"(?P<path>(?:“.*?”|[^“])*?): (?P<message>.*)", re.DOTALL)
_NOTHING = msgspec.Raw(b"null")


@dataclass(frozen=True)
class RequestedTable:
    """One table of a request."""

    source_url: str | None
    headers: dict[str, str] | None
    data: TableData | None
    drawing: TableTextsAndTemplate
    paths: dict[str, str]
    """The paths of its fields in the request."""

    @property
    def row_count(self) -> int:
        """The number of rows that were sent for the table."""
        data = self.data or []
        return sum(map(len, data.values())) if isinstance(data, dict) else len(data)


def build_tables_or_reject_request(body: DownloadRequest) -> list[RequestedTable]:
    """Return the tables of a request.

    Raises:
        RequestRejected: Its fields are inconsistent.
    """
    if misfits := list(_find_problems_of_splitting_into_tables(body)):
        parsing.reject_request_with_field_errors("body", misfits)
    tables = _build_tables(body)
    if faults := [
        *_find_source_problems(body, tables),
        *_find_unused_fields(body, tables),
        *_find_drawing_problems(body, tables),
    ]:
        parsing.reject_request_with_field_errors("body", faults)
    return tables


def build_drawing(body: DownloadRequest, tables: list[RequestedTable]) -> WorkbookLayout:
    """Build the drawing of the book."""
    return build_book_drawing(body, [table.drawing for table in tables], body.multi or TablesOnOneSheetOrTabs.TAB)


def _build_tables(body: DownloadRequest) -> list[RequestedTable]:
    if body.sheets is not None:
        return [_build_table_of_sheet(sheet, index) for index, sheet in enumerate(body.sheets)]
    if body.multi is not None:
        return [_build_table_from_list_entries(body, index) for index in range(_count_tables(body))]
    return [_build_table(body, {field: field for field in SOURCE_FIELDS + REGIONS})]


def _build_table_of_sheet(sheet: TableOnOwnSheetRequest, index: int) -> RequestedTable:
    paths = {field: f"sheets[{index}].{field}" for field in SOURCE_FIELDS + REGIONS}
    return _build_table(sheet, paths, sheet.name or get_default_sheet_name(index))


def _build_table_from_list_entries(body: DownloadRequest, index: int) -> RequestedTable:
    listed = _collect_list_fields(body)
    paths = {field: f"{field}[{index}]" if field in listed else field for field in SOURCE_FIELDS + REGIONS}
    return _build_table(body, paths, **{field: values[index] for field, values in listed.items()})


def _build_table(
    body: DownloadRequest | TableOnOwnSheetRequest, paths: dict[str, str], sheet: str | None = None, **own: Any
) -> RequestedTable:
    values = {field: own.get(field, getattr(body, field)) for field in SOURCE_FIELDS + REGIONS}
    return RequestedTable(
        values["source_url"], values["headers"], values["data"], build_table_drawing(values, sheet), paths
    )


def _collect_list_fields(body: DownloadRequest) -> dict[str, list[Any]]:
    """Return the fields that have a list, with one value for each table."""
    values = {field: getattr(body, field) for field in SOURCE_FIELDS + REGIONS}
    return {field: value for field, value in values.items() if isinstance(value, list)}


def _count_tables(body: DownloadRequest) -> int:
    return max(map(len, _collect_list_fields(body).values()), default=1)


def _find_problems_of_splitting_into_tables(body: DownloadRequest) -> Iterator[FieldProblem]:
    """Yield problems that make it impossible to split the request into tables."""
    if body.sheets is not None:
        misplaced = [field for field in ("multi", *SOURCE_FIELDS, *REGIONS) if getattr(body, field) is not None]
        for field in misplaced:
            yield FieldProblem(
                path=field, message="it is sent beside `sheets`; say it of each sheet, or send no sheets."
            )
        for index, sentence in find_sheet_name_faults([sheet.name for sheet in body.sheets]):
            yield FieldProblem(path=f"sheets[{index}].name", message=sentence)
    elif body.multi is not None:
        yield from _find_list_length_problems(body)
    else:
        yield from _find_unexpected_lists(body)


def _find_list_length_problems(body: DownloadRequest) -> Iterator[FieldProblem]:
    listed = _collect_list_fields(body)
    count = _count_tables(body)
    if count > TABLES_MAX:
        longest = next(field for field, values in listed.items() if len(values) == count)
        yield FieldProblem(path=longest, message=f"it has {count:,} entries; send 1–{TABLES_MAX}, one for each table.")
        return
    first = next(iter(listed), "")
    for field, values in listed.items():
        if len(values) != len(listed[first]):
            entries = format_count(len(values), "entry", "entries")
            message = f"it has {entries}, and {first} has {len(listed[first])}; send one for each table."
            yield FieldProblem(path=field, message=message)
    for index, data in enumerate(listed.get("data", ())):
        if isinstance(data, dict) and not all(isinstance(rows, list) for rows in data.values()):
            message = "with `multi`, each entry is all rows of one table; send an array of rows."
            yield FieldProblem(path=f"data[{index}]", message=message)


def _find_unexpected_lists(body: DownloadRequest) -> Iterator[FieldProblem]:
    for field in ("source_url", "headers", "title", "summary"):
        if isinstance(getattr(body, field), list):
            yield FieldProblem(
                path=field, message="it is an array, one entry for each table; send `multi`, or one value."
            )
    if isinstance(body.data, list) and not all(isinstance(row, dict) for row in body.data):
        message = "it holds the rows of several tables; send `multi`, or the rows of one."
        yield FieldProblem(path="data", message=message)


def _find_source_problems(body: DownloadRequest, tables: list[RequestedTable]) -> Iterator[FieldProblem]:
    for index, table in enumerate(tables):
        if (table.source_url is None) == (table.data is None):
            found = "neither" if table.data is None else "both"
            place = f"table {index + 1}" if len(tables) > 1 else "it"
            yield FieldProblem(path="", message=f"{place} has {found} of source_url and data; send one of them.")
        if ours := sorted(PAGING_PARAMETERS & set(_list_query_parameter_names(table.source_url))):
            message = f"its query has {' and '.join(ours)}, which Haulage adds to each request; leave that out."
            yield FieldProblem(path=table.paths["source_url"], message=message)
        if isinstance(table.data, dict) and body.type is not FileType.EXCEL:
            message = "an object of row lists belongs to row heads, which only Excel has; send an array of rows."
            yield FieldProblem(path=table.paths["data"], message=message)
        if table.headers is not None and table.source_url is None and not isinstance(body.headers, dict):
            yield FieldProblem(path=table.paths["headers"], message=_HEADERS_WITHOUT_SOURCE)
    if isinstance(body.headers, dict):
        origins = sorted({_parse_origin_or_url(table.source_url) for table in tables if table.source_url is not None})
        if not origins:
            yield FieldProblem(path="", message=_HEADERS_WITHOUT_SOURCE)
        if len(origins) > 1:
            message = f"they would go to {len(origins)} hosts ({', '.join(origins)[:200]}); send an array."
            yield FieldProblem(path="headers", message=message)
    if len(tables) > 1 and body.type is not FileType.EXCEL:
        message = f"a {body.type} file holds one table, and {len(tables)} are asked for; send excel, or ask for each."
        yield FieldProblem(path="type", message=message)


def _find_unused_fields(body: DownloadRequest, tables: list[RequestedTable]) -> Iterator[FieldProblem]:
    """Yield a problem for each field that was sent and has no effect on this download."""
    if all(table.data is not None for table in tables):
        for field in PAGE_FIELDS:
            if field in body.model_fields_set:
                message = "it is about the pages of a source, but the rows come as data; leave it out."
                yield FieldProblem(path=field, message=message)
    if body.type is not FileType.CSV:
        for field in CSV_FIELDS:
            if field in body.model_fields_set:
                message = f"it is about CSV files, and the type is {body.type}; leave it out, or send csv."
                yield FieldProblem(path=field, message=message)


def _list_query_parameter_names(url: str | None) -> Iterable[str]:
    with suppress(ValueError):
        return URL(url or "").query.keys()
    return ()


def _parse_origin_or_url(url: str) -> str:
    with suppress(ValueError):
        return str(URL(url).origin())
    return url


def _find_drawing_problems(body: DownloadRequest, tables: list[RequestedTable]) -> Iterator[FieldProblem]:
    """Yield problems of the drawing; for other file types only those of the size of a template."""
    if body.type is FileType.EXCEL:
        found = (find_table_faults(table.drawing, table.paths.__getitem__) for table in tables)
        yield from build_field_problems(chain.from_iterable(found))
        yield from find_drawing_length_problem(build_drawing(body, tables))
    else:
        sizes = (find_unreadable_template_faults(table.drawing.template, table.paths["template"]) for table in tables)
        yield from build_field_problems(chain.from_iterable(sizes))


def build_table_drawing(regions: dict[str, Any], sheet: str | None = None) -> TableTextsAndTemplate:
    """Build the drawing of one table, without empty regions."""
    given = {region: regions[region] for region in REGIONS if not is_empty_template(regions[region])}
    return TableTextsAndTemplate(sheet=sheet, **given)


def build_book_drawing(
    options: BookOptions,
    tables: list[TableTextsAndTemplate],
    multi: TablesOnOneSheetOrTabs = TablesOnOneSheetOrTabs.TAB,
) -> WorkbookLayout:
    """Build the drawing of a book of these tables."""
    return WorkbookLayout(
        tables=tables,
        multi=multi,
        width=options.default_width,
        height=options.default_height,
        align=options.col_align,
        freeze=options.freeze,
        filter=options.filter,
    )


def build_field_problems(faults: Iterable[str]) -> Iterator[FieldProblem]:
    """Convert faults of the domain to problems of fields, without duplicates."""
    for fault in dict.fromkeys(faults):
        if found := _FAULT_TEXT.fullmatch(fault):
            yield FieldProblem(path=found["path"], message=found["message"])


def find_drawing_length_problem(drawing: WorkbookLayout) -> Iterator[FieldProblem]:
    """Yield a problem if the drawing is too long; it is a part of the workflow's input."""
    length = len(drawing.model_dump_json())
    if length > DRAWING_MAX_CHARACTERS:
        message = (
            f"its titles, summaries, headers, footers and templates have {length:,} characters, those for all tables "
            f"once for each; send {DRAWING_MAX_CHARACTERS:,} or less."
        )
        yield FieldProblem(path="", message=message)


class _RawRowsBody(msgspec.Struct):
    data: msgspec.Raw = _NOTHING


class _RawTablesBody(_RawRowsBody):
    sheets: list[_RawRowsBody] | None = None


def extract_rows_json(call: Call) -> bytes:
    """Return the rows of a request with one table, as JSON text."""
    return bytes(msgspec.json.decode(call.request_state.body, type=_RawRowsBody).data)


def extract_rows_json_by_table(call: Call, body: DownloadRequest) -> list[bytes]:
    """Return the rows of each table as JSON text; `null` for a table that has a source."""
    sent = msgspec.json.decode(call.request_state.body, type=_RawTablesBody)
    if sent.sheets is not None:
        return [bytes(sheet.data) for sheet in sent.sheets]
    if body.multi is not None and isinstance(body.data, list):
        return [bytes(rows) for rows in msgspec.json.decode(sent.data, type=list[msgspec.Raw])]
    return [bytes(sent.data)]


async def store_inline_rows_as_source_pages(
    call: Call, body: DownloadRequest, tables: list[RequestedTable], keys: list[str | None]
) -> None:
    """Store the rows of each table that has a key as a page, in the form of a source's answer."""
    sent = extract_rows_json_by_table(call, body)
    for table, key, text in zip(tables, keys, sent if len(sent) > 1 else repeat(sent[0]), strict=False):
        if key is not None:
            page = b'{"total":%d,"data":%b}' % (table.row_count, text)
            await call.services.objects.put(key, page, content_type="application/json")
