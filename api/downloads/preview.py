"""POST /v1/templates/preview: draw a template with ten rows, or report everything that is wrong with it."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, repeat
from typing import Final, NoReturn

import msgspec
from aiohttp import web
from pydantic import Field, JsonValue

from api.downloads import tables
from api.downloads.context import PREVIEWS_BUSY, get_preview_queue, routes
from api.downloads.requests import BookOptions, TableData, TableTextsAndTemplateFields, TimeZone
from api.downloads.tables import REGIONS
from api.http import parsing
from api.http.problems import FieldProblem
from api.http.routes import Call, RouteAccess
from domain.downloads.models import FileType
from domain.downloads.pages import read_first_page
from domain.downloads.shape import COLUMNS_MAX, ShapedPageReader, choose_table_shape
from domain.faults import QuotaExhausted, SourceFault
from domain.secrets import KeyRight
from excel.limits import UncoveredRows
from excel.template.models import ROW_HEAD_NAMES, CellKind, ColumnHeadNode, TableTemplate, WorkbookLayout
from excel.template.reading import find_table_faults, read_template
from infra.objects import build_content_disposition

FILE_NAME = "preview.xlsx"
BOOK_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PREVIEW_CELLS_MAX = 50_000
"""Drawing more cells takes too long for a synchronous request."""
SAMPLE_ROWS: Final = 10

# Of either sign, with and without decimals, small and large: conditions and number formats have something to show.
_NUMBERS: Final = (1280, -15, 0, 99.9, -3.25, 48000, 7, 1050.5, -640, 12)
# What is quoted, escaped or in brackets are no codes; the word General has none either.
_NO_CODES: Final = re.compile(r'"[^"]*"|\\.|\[[^]]*\]|general', re.IGNORECASE)
_FIRST_MOMENT: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


class PreviewRequest(TableTextsAndTemplateFields, BookOptions):
    """What to draw: the Excel fields of a request for one table."""

    data: TableData | None = Field(
        default=None, description="rows to show, the first ten of them; by default rows are invented for the template"
    )
    time_zone: TimeZone = Field(default="UTC", description="IANA name, for dates")


@routes.post(
    "/v1/templates/preview",
    access=RouteAccess.PROJECT,
    is_audited=False,
    right=KeyRight.READ,
    media_type=BOOK_TYPE,
    problems={PREVIEWS_BUSY: QuotaExhausted},
)
async def preview_template(call: Call, body: PreviewRequest) -> web.Response:
    """Draw a template.

    The response is an Excel file with the first ten rows of `data`, or with ten sample rows. All faults of the template
    are reported at once, each with the path of its node.
    """
    drawing = parse_drawing_within_preview_limits(body)
    page = build_sample_page(drawing) if body.data is None else build_first_rows_page(tables.extract_rows_json(call))
    try:
        book = await get_preview_queue(call).draw_when_turn_comes_or_raise_if_full(
            call.project_id, lambda: draw_preview(drawing, page, body.time_zone)
        )
    except SourceFault as fault:
        _reject_field("template" if body.data is None else "data", fault.record.sentence)
    except UncoveredRows as uncovered:
        _reject_field("data", f"{uncovered} Add row heads of these names, or leave the rows out.")
    return web.Response(
        body=book, content_type=BOOK_TYPE, headers={"Content-Disposition": build_content_disposition(FILE_NAME)}
    )


def parse_drawing_within_preview_limits(body: PreviewRequest) -> WorkbookLayout:
    """Return the drawing of a request.

    Raises:
        RequestRejected: It cannot be drawn, or takes too long for a preview.
    """
    table = tables.build_table_drawing(body.model_dump(include=set(REGIONS)))
    drawing = tables.build_book_drawing(body, [table])
    faults = [*tables.build_field_problems(find_table_faults(table)), *tables.find_drawing_length_problem(drawing)]
    if table.template is None and body.data is None:
        message = "it is missing, and so is `data`, whose keys would be titles; send one of them."
        faults.append(FieldProblem(path="template", message=message))
    if faults:
        parsing.reject_request_with_field_errors("body", faults)
    if table.template is not None:
        _require_preview_cells_within_limit(read_template(table.template))
    return drawing


def _require_preview_cells_within_limit(template: TableTemplate) -> None:
    reserved = sum(leaf.row_count for node in template.rows for leaf in node.leaves)
    cells = len(template.leaves) * max(SAMPLE_ROWS, reserved)
    if cells > PREVIEW_CELLS_MAX:
        _reject_field(
            "template",
            f"its {len(template.leaves):,} columns and {reserved:,} reserved rows are {cells:,} cells; a preview has "
            f"{PREVIEW_CELLS_MAX:,} at most. Reserve fewer rows for it.",
        )


def build_sample_page(drawing: WorkbookLayout) -> bytes:
    """Build a page of sample rows for the template."""
    rows = build_sample_rows(read_template(drawing.tables[0].template))
    return msgspec.json.encode({"total": len(rows), "data": rows})


def build_sample_rows(template: TableTemplate) -> list[dict[str, JsonValue]]:
    """Return ten rows; with row heads, the first ten rows that these have."""
    leaves = {leaf.name: leaf for leaf in reversed(template.leaves) if leaf.name is not None}
    charted = frozenset(key for chart in template.charts for key in chart.values)
    kinds = {key: _get_own_kind_or_guess_by_format_and_chart(leaf, key in charted) for key, leaf in leaves.items()}
    made: list[dict[str, JsonValue]] = [
        {key: _build_sample_value(leaves[key], kinds[key], place) for key in template.keys}
        for place in range(SAMPLE_ROWS)
    ]
    if not template.rows:
        return made
    named = (leaf for node in template.rows for leaf in node.leaves if leaf.name is not None)
    heads = islice(chain.from_iterable(repeat(leaf.name, leaf.row_count) for leaf in named), SAMPLE_ROWS)
    return [{**row, ROW_HEAD_NAMES[-1]: head} for row, head in zip(made, heads, strict=False)]


def build_first_rows_page(sent: bytes) -> bytes:
    """Return a page of the first ten rows, in their original spelling."""
    data: list[msgspec.Raw] | dict[str, list[msgspec.Raw]]
    if sent.startswith(b"{"):
        groups = msgspec.json.decode(sent, type=dict[str, list[msgspec.Raw]])
        heads = islice(((name, row) for name, rows in groups.items() for row in rows), SAMPLE_ROWS)
        data = {}
        for name, row in heads:
            data.setdefault(name, []).append(row)
    else:
        data = msgspec.json.decode(sent, type=list[msgspec.Raw])[:SAMPLE_ROWS]
    return msgspec.json.encode({"data": data})


def draw_preview(drawing: WorkbookLayout, page: bytes, time_zone: str) -> bytes:
    """Draw the book, by the same code as the books of downloads."""
    # Arrow and the workbook engine are heavy, and most API processes never draw.
    from excel.arrow import pa  # noqa: PLC0415
    from excel.workbook import Workbook  # noqa: PLC0415

    shape = choose_table_shape(FileType.EXCEL, read_first_page(page), drawing.tables[0])
    if len(shape.columns) > COLUMNS_MAX:
        keys = f"The rows have {len(shape.columns):,} keys; at most {COLUMNS_MAX:,} are allowed."
        raise SourceFault("too_many_columns", keys, "Send only the fields that the file needs.")
    rows = ShapedPageReader(shape).read(page).rows
    cells = [pa.array([bytes(row[place]) for row in rows], pa.binary()) for place in range(len(shape.columns))]
    file = io.BytesIO()
    book = Workbook(drawing, time_zone=time_zone)
    body = book.begin_table(drawing.tables[0], shape.columns)
    if rows:
        body.add(pa.record_batch(cells, names=shape.columns))
    book.finish(file.write)
    return file.getvalue()


def _reject_field(path: str, message: str) -> NoReturn:
    parsing.reject_request_with_field_errors("body", [FieldProblem(path=path, message=message)])


def _get_own_kind_or_guess_by_format_and_chart(leaf: ColumnHeadNode, is_charted: bool) -> CellKind:
    """Return the kind of sample values, also for a column without a kind."""
    if leaf.kind is not CellKind.AUTO:
        return leaf.kind
    codes = _NO_CODES.sub("", leaf.number_format or "").lower()
    if set(codes) & set("ymdhs"):
        return CellKind.DATETIME
    is_number = bool(codes) and codes != "@"
    return CellKind.NUMBER if is_number or is_charted or leaf.rules else CellKind.TEXT


def _build_sample_value(leaf: ColumnHeadNode, kind: CellKind, place: int) -> JsonValue:
    moment = _FIRST_MOMENT + timedelta(days=place, minutes=37 * place)
    match kind:
        case CellKind.NUMBER:
            return _NUMBERS[place]
        case CellKind.DATE:
            return moment.date().isoformat()
        case CellKind.DATETIME:
            return moment.isoformat()
        case CellKind.BOOLEAN:
            return place % 3 != 0
        case CellKind.RICH:
            return f"<b>{place + 1}</b> <font color='red'>red</font> and <i>italic</i>"
        case CellKind.LINK:
            return f"https://example.com/{place + 1}"
        case CellKind.FORMULA:
            return f"={place + 1}*2"
        case _:
            return f"{leaf.title} {place + 1}"
