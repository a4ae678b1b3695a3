"""The first look at the source of a table: how many rows, which keys, and how they become the cells of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import JsonValue

from activities.downloads.source import Source, source_of
from activities.downloads.staged import GatheredRows
from domain.downloads import sinks
from domain.downloads.excel import checking
from domain.downloads.excel.drawing import TableDrawing
from domain.downloads.excel.reading import read_template
from domain.downloads.excel.template import ROW_HEAD_NAMES
from domain.downloads.pages import FirstLook, first_look
from domain.downloads.plan import Extent
from domain.downloads.request import DownloadOrder, FileType
from domain.downloads.shape import Shape, ShapedReader
from domain.downloads.steps import Probe
from domain.faults import SourceFault
from infra.services import Services

COLUMNS_MAX = 2_000
COLUMN_NAMES_MAX_CHARACTERS = 100_000


@dataclass(frozen=True)
class Look:
    """What a source has, how its table is to look, and the rows of its first page, as they are staged."""

    probe: Probe
    drawing: TableDrawing | None
    sample: GatheredRows


async def look(services: Services, order: DownloadOrder, drawing: TableDrawing | None, more_columns: list[str]) -> Look:
    """Learn what a source has, and how its table is to look.

    Args:
        order: For the table.
        drawing: What the request says of how it looks, if it is for a book; what the source answers goes before it.
        more_columns: Columns that rows were seen to have beyond those of the first page.
    """
    first = await _first(source_of(services, order), order)
    first = replace(first, columns=list(dict.fromkeys([*first.columns, *more_columns])))
    if drawing is not None:
        drawing = _merged(drawing, first)
    shape = shape_of(order.type, first, drawing)
    _require_usable(shape.columns)
    # Rows that came with the request are one page, whatever their number.
    page_size = order.page_size if order.inline_key is None else max(1, first.total or 0)
    extent = Extent(total=first.total, page_size=page_size, gaps_allowed=order.force_continue)
    encoded = sinks.sink_for(order).page(ShapedReader(shape).read(first.text).rows)
    probe = Probe(extent=extent, shape=shape, row_bytes=len(encoded) / max(1, first.rows))
    return Look(probe, drawing, GatheredRows(encoded, first.rows, shape))


async def _first(source: Source, order: DownloadOrder) -> FirstLook:
    """One row tells the total and what surrounds the rows, the first page the columns and what a row weighs."""
    first = await source.read(0, 1, first_look)
    if first.total == 0 and first.rows:
        raise SourceFault(
            "source_bad_total",
            f"The source tells a total of 0 and answers {first.rows} rows.",
            "Answer the number of all rows that match.",
        )
    if first.total is not None and first.total <= 1:
        return first
    page = await source.read(0, order.page_size, first_look)
    return replace(page, template=first.template, header=first.header, footer=first.footer, total=first.total)


def _merged(drawing: TableDrawing, first: FirstLook) -> TableDrawing:
    """The source's word counts where it says one."""
    answered: dict[str, JsonValue] = {
        "template": first.template,
        "header": first.header,
        "footer": first.footer,
    }
    told = {region: value for region, value in answered.items() if value not in (None, [], {}, "")}
    merged = drawing.model_copy(update=told)
    if faults := checking.faults(merged):
        raise SourceFault(
            "source_bad_drawing",
            f"The table cannot be drawn: {' '.join(faults)}",
            "Mend what the source, or the request, says of it; POST /v1/templates/preview shows what that draws.",
        )
    return merged


def shape_of(kind: FileType, first: FirstLook, drawing: TableDrawing | None) -> Shape:
    """Which keys become cells.

    Raises:
        SourceFault: The rows are not what the kind of file, or the template, can show.
    """
    template = None if drawing is None or drawing.template is None else read_template(drawing.template)
    if first.grouped and (template is None or not template.rows):
        raise SourceFault(
            "source_grouped",
            "The source's `data` is an object of lists, which only Excel shows, under the row heads of a template."
            if kind is not FileType.EXCEL
            else "The source's `data` is an object of lists, and the template has no row heads to put them under.",
            "Answer `data` as a list of rows, or give a template with `row`.",
        )
    if template is None:
        return Shape(columns=first.columns)
    columns, row_head = list(template.keys), None
    if template.rows:
        told = next((name for name in ROW_HEAD_NAMES if name in first.columns), None)
        if first.grouped:
            row_head = told = ROW_HEAD_NAMES[-1]
        elif told is None and first.rows:
            raise SourceFault(
                "source_no_row_head",
                f"The template has row heads, but no row of the first page has one of the keys "
                f"{', '.join(ROW_HEAD_NAMES)}; they have: {', '.join(first.columns)[:1_000]}.",
                "Answer with each row the name of the row head that it belongs to, or `data` as an object of lists.",
            )
        told = told or ROW_HEAD_NAMES[-1]
        columns = [*(name for name in columns if name != told), told]
    left_out = [name for name in first.columns if name not in columns]
    return Shape(columns=columns, left_out=left_out, keys=first.columns, row_head=row_head)


def _require_usable(columns: list[str]) -> None:
    if len(columns) > COLUMNS_MAX or sum(map(len, columns)) > COLUMN_NAMES_MAX_CHARACTERS:
        raise SourceFault(
            "source_too_many_columns",
            f"The source's rows have {len(columns)} keys; at most {COLUMNS_MAX} are allowed, "
            f"{COLUMN_NAMES_MAX_CHARACTERS:,} characters in all.",
            "Answer only the fields that the file needs.",
        )
