"""What a request says of its tables: taken apart, or refused with a path and a sentence for all that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from api.downloads import creation, tables
from api.downloads.requests import DownloadRequest
from api.downloads.tables import RequestedTable
from api.http import validation
from api.http.problems import RequestRejected
from excel.template.models import HorizontalAlign, TablesOnOneSheetOrTabs

URL = "http://a.example/rows"
ROWS = [{"a": 1}]


def request(**fields: Any) -> DownloadRequest:
    """A request as the API parses it."""
    return DownloadRequest.model_validate_json(json.dumps({"type": "excel"} | fields), strict=True)


def parse_request(**fields: Any) -> list[RequestedTable]:
    """The tables of a request that is right."""
    return tables.build_tables_or_reject_request(request(**fields))


def list_problems(**fields: Any) -> list[str]:
    """All that is wrong with a request."""
    try:
        parse_request(**fields)
    except ValidationError as error:
        problems = validation.describe_errors(error, DownloadRequest)
    except RequestRejected as refusal:
        problems = refusal.errors
    else:
        return []
    return [f"{problem.path}: {problem.message}" for problem in problems]


def test_a_single_table() -> None:
    """Regions and source are those of the request, and it names no sheet."""
    [table] = parse_request(
        source_url=URL, title="T", summary="<b>S</b>", header={"a": 1}, footer="F", template={"a": "A"}
    )

    assert (table.source_url, table.data, table.row_count) == (URL, None, 0)
    assert table.drawing.model_dump() == {
        "sheet": None,
        "title": "T",
        "summary": "<b>S</b>",
        "header": {"a": 1},
        "footer": "F",
        "template": {"a": "A"},
    }


def test_rows_of_row_heads_are_counted() -> None:
    """The total of a three-dimensional table is that of its inner rows."""
    [table] = parse_request(data={"north": ROWS, "south": ROWS * 2})

    assert table.row_count == 3


def test_lists_make_tables() -> None:
    """With `multi`, an entry for each table, null for none, and single values for all."""
    first, second = parse_request(
        multi="page",
        title=["One", None],
        summary="both",
        header=[{"a": 1}, [{"b": 2}, {"c": 3}]],
        template=[{"a": "A"}, [{"name": "b"}]],
        source_url=[URL, None],
        data=[None, ROWS],
    )

    assert [first.source_url, second.data] == [URL, ROWS]
    assert [table.drawing.title for table in (first, second)] == ["One", None]
    assert {table.drawing.summary for table in (first, second)} == {"both"}
    assert [table.drawing.header for table in (first, second)] == [{"a": 1}, [{"b": 2}, {"c": 3}]]
    assert [table.drawing.template for table in (first, second)] == [{"a": "A"}, [{"name": "b"}]]


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        ([ROWS, ROWS * 2], [1, 2]),
        ([{"north": ROWS}, ROWS * 3], [1, 3]),
        ([{"north": ROWS}, {"north": ROWS, "south": ROWS}], [1, 2]),
        ([[], []], [0, 0]),
    ],
)
def test_rows_of_several_tables(data: Any, counts: list[int]) -> None:
    """Each table has a list of rows, or an object of them for its row heads."""
    assert [table.row_count for table in parse_request(multi="tab", data=data)] == counts


def test_sheets_make_tables() -> None:
    """Each has its own regions and source; one without a name gets that of its place."""
    first, second = parse_request(
        sheets=[{"name": "汇总", "source_url": URL, "title": "T"}, {"data": ROWS, "footer": {"签名": ""}}]
    )

    assert [table.drawing.sheet for table in (first, second)] == ["汇总", "Sheet2"]
    assert [first.source_url, second.row_count] == [URL, 1]
    assert [first.drawing.title, second.drawing.footer] == ["T", {"签名": ""}]


def test_the_drawing() -> None:
    """What holds for all tables, under the names that the original used."""
    body = request(
        multi="page", data=[ROWS, ROWS], default_width=20, default_height=18.5, col_align="left", filter=False
    )
    drawing = tables.build_drawing(body, tables.build_tables_or_reject_request(body))

    assert (drawing.multi, drawing.width, drawing.height, drawing.align) == (
        TablesOnOneSheetOrTabs.PAGE,
        20,
        18.5,
        HorizontalAlign.LEFT,
    )
    assert (drawing.freeze, drawing.filter, len(drawing.tables)) == (True, False, 2)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, ": it has neither of source_url and data; send one of them."),
    ({"source_url": URL, "data": ROWS}, ": it has both of source_url and data; send one of them."),
    ({"source_url": URL, "title": "x" * 201}, "title: it has 201 characters; send 200 or less."),
    (
        {"source_url": URL, "title": ["x"]},
        "title: it is an array, one entry for each table; send `multi`,",
    ),
    ({"source_url": [URL]}, "source_url: it is an array, one entry for each table; send `multi`, or one value."),
    ({"data": [ROWS]}, "data: it holds the rows of several tables; send `multi`, or the rows of one."),
    ({"data": {"north": [1]}}, "data.north[0]: a number was sent where an object belongs; send an object."),
    ({"data": {"north": {}}}, "data.north: an object was sent where an array belongs; send an array."),
    ({"data": [{"a": 1}, [2]]}, "data[1]: an array was sent where an object belongs; send an object."),
    ({"data": 1}, "data: a number was sent where an array belongs; send an array."),
    (
        {"multi": "page", "data": [ROWS, ROWS], "title": ["a", "b", "c"]},
        "title: it has 3 entries, and data has 2; send one for each table.",
    ),
    ({"multi": "page", "data": [ROWS] * 21}, "data: it has 21 entries; send 1–20, one for each table."),
    (
        {"multi": "page", "data": ROWS},
        "data[0]: with `multi`, each entry is all rows of one table;",
    ),
    ({"multi": "page", "data": [ROWS, None]}, ": table 2 has neither of source_url and data; send one of them."),
    ({"multi": "page", "data": [ROWS, [1]]}, "data[1][0]: a number was sent where an object belongs; send an object."),
    (
        {"multi": "page", "source_url": URL, "title": ["x" * 201, "y"]},
        "title[0]: it has 201 characters; send 200 or less.",
    ),
    ({"multi": "page", "source_url": URL, "title": ["x"] * 21}, "title: it has 21 entries; send 1–20."),
    ({"multi": "book", "source_url": URL}, "multi: “book” is not one of 'page' or 'tab'; choose one of them."),
    ({"sheets": []}, "sheets: it has 0 entries; send 1–20."),
    ({"sheets": [{"data": ROWS}] * 21}, "sheets: it has 21 entries; send 1–20."),
    ({"sheets": [{}]}, ": it has neither of source_url and data; send one of them."),
    ({"sheets": [{"data": ROWS}, {}]}, ": table 2 has neither of source_url and data; send one of them."),
    (
        {"sheets": [{"data": ROWS}], "title": "T"},
        "title: it is sent beside `sheets`; say it of each sheet, or send no sheets.",
    ),
    (
        {"sheets": [{"data": ROWS}], "multi": "tab"},
        "multi: it is sent beside `sheets`; say it of each sheet, or send no sheets.",
    ),
    ({"sheets": [{"data": ROWS, "titel": "T"}]}, "sheets[0].titel: there is no such field; did you mean title?"),
    ({"sheets": [{"data": ROWS, "name": "a/b"}]}, "sheets[0].name: “a/b” holds /, which no name of a sheet may;"),
    ({"sheets": [{"data": ROWS, "name": "x" * 32}]}, "sheets[0].name: it has 32 characters; send 1–31."),
    ({"sheets": [{"data": ROWS, "name": "🚚" * 16}]}, "sheets[0].name: it has 32 characters as Excel counts them;"),
    ({"sheets": [{"data": ROWS, "name": "'a"}]}, "sheets[0].name: “'a” begins or ends with an apostrophe"),
    (
        {"sheets": [{"data": ROWS, "name": "History"}]},
        "sheets[0].name: “History” is a name that Excel keeps",
    ),
    (
        {"sheets": [{"data": ROWS, "name": "a"}, {"data": ROWS, "name": "A"}]},
        "sheets[1].name: “A” is the name of sheet 1, too;",
    ),
    ({"sheets": [{"data": ROWS, "name": "Sheet2"}, {"data": ROWS}]}, "sheets[1].name: “Sheet2” is the name of sheet 1"),
    ({"data": ROWS, "header": "text"}, "header: it is “text”; send an object of names and values, or an array of such"),
    ({"data": ROWS, "header": [1]}, "header[0]: it is 1; send an object of names and values."),
    ({"data": ROWS, "header": {"油站": {}}}, "header.油站: it is an object; send a text or a number."),
    ({"data": ROWS, "header": {"x": "x" * 8_001}}, "header.x: it has 8,001 characters; send 8,000 or less."),
    ({"data": ROWS, "header": {f"{n}": n for n in range(101)}}, "header: it has 101 entries; send 100 or less."),
    ({"data": ROWS, "header": {"x" * 201: 1}}, "header: a name has 201 characters; send 200 or less."),
    ({"data": ROWS, "footer": "x" * 8_001}, "footer: it has 8,001 characters; send 8,000 or less."),
    (
        {"data": ROWS, "footer": 1},
        "footer: it is 1; send a text, an object of names and values,",
    ),
    ({"multi": "tab", "data": [ROWS], "footer": [[{"a": []}]]}, "footer[0][0].a: it is an array; send a text or a"),
    (
        {"data": ROWS, "template": "name"},
        "template: it is neither an object nor an array; send a tree",
    ),
    ({"data": ROWS, "template": ["x" * 100_000]}, "template: it has 100,004 characters; send 100,000 or less."),
    ({"data": ROWS, "default_width": 0}, "default_width: 0 is outside 1–255; choose a value"),
    ({"data": ROWS, "default_height": 410}, "default_height: 410 is outside 1–409;"),
    ({"data": ROWS, "col_align": "middle"}, "col_align: “middle” is not one of 'left', 'center' or 'right'"),
    ({"data": ROWS, "headers": {"A": "b"}}, ": it has headers for a source, but the rows come as data;"),
    (
        {"type": "csv", "data": {"north": ROWS}},
        "data: an object of row lists belongs to row heads, which only Excel has; send an array of rows.",
    ),
    (
        {"type": "csv", "multi": "page", "data": [ROWS, ROWS]},
        "type: a csv file holds one table, and 2 are asked for; send excel, or ask for each.",
    ),
    (
        {"type": "parquet", "sheets": [{"data": ROWS}] * 3},
        "type: a parquet file holds one table, and 3 are asked for; send excel, or ask for each.",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), FAULTS, ids=lambda value: str(value)[:60])
def test_each_fault_has_its_sentence(fields: dict[str, Any], sentence: str) -> None:
    """The path leads to the field, and the sentence says what to send."""
    faults = list_problems(**fields)

    assert [fault for fault in faults if fault.startswith(sentence)], faults


def test_all_faults_of_a_template_are_told() -> None:
    """Each node that is wrong has its own path."""
    template = {"col": [{"name": "a", "width": "wide"}, {"title": "g", "children": [{"name": "b", "align": "middle"}]}]}

    assert [fault.partition(": ")[0] for fault in list_problems(data=ROWS, template=template)] == [
        "template.col[0].width",
        "template.col[1].children[0].align",
    ]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"sheets": [{"data": ROWS}, {"data": ROWS, "template": [{}]}]}, "sheets[1].template[0]"),
        ({"multi": "page", "data": [ROWS, ROWS], "template": [None, [{}]]}, "template[1][0]"),
        ({"multi": "page", "data": [ROWS, ROWS], "template": {"col": [{}]}}, "template.col[0]"),
        ({"data": ROWS, "template": [{"name": "a", "b: c": 1}]}, "template[0][“b: c”]"),
    ],
)
def test_the_path_of_a_fault_leads_to_its_table(fields: dict[str, Any], path: str) -> None:
    """A problem that concerns all tables is reported once."""
    [fault] = list_problems(**fields)

    assert fault.startswith(f"{path}: ")


def test_the_whole_drawing_is_bounded() -> None:
    """A value for all tables counts once for each, as it travels so."""
    [fault] = list_problems(multi="page", data=[ROWS] * 20, summary="x" * 8_000, footer="x" * 8_000)

    assert fault.startswith(": its titles, summaries, headers, footers and templates have 32")
    assert fault.endswith("send 200,000 or less.")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_types_do_without_what_is_excel_s(kind: str) -> None:
    """They take it and ignore it, wrong or right."""
    fields = {"template": [{"width": -2}], "header": "no pairs", "footer": 7, "default_width": 9, "title": "T"}

    assert list_problems(type=kind, data=ROWS, **fields) == []
    assert list_problems(type=kind, sheets=[{"data": ROWS}]) == []


def test_the_order_of_columns_tells_requests_apart() -> None:
    """A template with its keys in another order makes another file; its spelling, and the order of fields, do not."""
    first = request(data=ROWS, template={"a": "A", "b": "B"})
    same = request(template={"a": "A", "b": "B"}, data=ROWS, freeze=True)
    other = request(data=ROWS, template={"b": "B", "a": "A"})

    assert creation.fingerprint_request(first) == creation.fingerprint_request(same)
    assert creation.fingerprint_request(first) != creation.fingerprint_request(other)
