"""Excel through the public API: one book or an archive of several, templates of both origins, tables of any number."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import openpyxl
import pytest
from python_calamine import CalamineWorkbook

from activities.downloads import books
from infra.settings import DownloadSettings, Settings
from sims import rows as sample
from tests.support.downloads import Downloads, running_downloads
from tests.support.selecting import mark_long_except

pytestmark = pytest.mark.stack

SEED = 4
COLUMNS = tuple(sample.row(SEED, 0))
CITIES = [{"name": city} for city in sorted({str(sample.row(SEED, n)["city"]) for n in range(1_000)})]
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Books small enough to become several with some thousand rows."""
    small = settings.downloads.model_copy(update={"excel_file_max_bytes": 400_000, "excel_file_max_rows": 20_000})
    return settings.model_copy(update={"downloads": small})


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source."""
    async with running_downloads(settings) as running:
        yield running


def read_sheet(content: bytes, place: int = 0) -> list[list[Any]]:
    """The cells of a sheet, row by row."""
    book = openpyxl.load_workbook(io.BytesIO(content))
    return [list(row) for row in book.worksheets[place].iter_rows(values_only=True)]


async def export_inline(exports: Downloads, **request: Any) -> dict[str, Any]:
    """An Excel download of anything, at its end."""
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json={"type": "excel", **request})
    assert reply.status == 202, reply.body
    return await exports.wait_for_end(reply.body["task_id"])


async def export_book(exports: Downloads, **request: Any) -> bytes:
    """The file of an Excel download that goes well."""
    status = await export_inline(exports, **request)
    assert status["state"] == "succeeded", status["fault"]
    return await exports.file(status["task_id"])


def build_expected_row(seed: int, number: int) -> list[Any]:
    """A row of the sample source as openpyxl reads it back."""
    row = sample.row(seed, number)
    amount = float(row["amount"])
    at = row["ordered_at"]
    return [row["id"], row["order_no"], row["customer"], row["product"], amount, row["quantity"], row["paid"], at]


async def test_one_book(exports: Downloads) -> None:
    """Rows in order under the data's keys; the store holds the book and its manifest alone."""
    status = await exports.run(exports.source.url(rows=3_000, seed=SEED), type="excel", file_name="订单")

    assert status["state"] == "succeeded", status["fault"]
    assert (status["rows"], status["files"], status["file_name"]) == (3_000, 1, "订单.xlsx")
    content = await exports.file(status["task_id"])
    heads, *rows = read_sheet(content)
    assert heads == list(sample.row(SEED, 0))
    assert len(rows) == 3_000
    for number in (0, 1_499, 2_999):
        assert rows[number][:7] == build_expected_row(SEED, number)[:7]
    assert len(content) == status["bytes"]
    assert len(await exports.leftovers()) == 2


@pytest.mark.long
async def test_many_rows_become_an_archive_of_books(exports: Downloads) -> None:
    """By several fetchers into several books, none too large, each with its heads, all rows once and in order."""
    status = await exports.run(exports.source.url(rows=24_000, seed=SEED), type="excel", page_size=100, file_name="a")

    assert status["state"] == "succeeded", status["fault"]
    assert (status["rows"], status["file_name"]) == (24_000, "a.zip")
    with zipfile.ZipFile(io.BytesIO(await exports.file(status["task_id"]))) as archive:
        assert archive.testzip() is None
        members = archive.infolist()
        books = [archive.read(member) for member in members]
    assert len(members) == status["files"] > 2
    digits = len(str(len(members)))
    assert [member.filename for member in members] == [f"a-{n:0{digits}}.xlsx" for n in range(1, len(members) + 1)]
    assert max(map(len, books)) <= 400_000
    sheets = [read_sheet(book) for book in books]
    assert {tuple(sheet[0]) for sheet in sheets} == {tuple(sample.row(SEED, 0))}
    ids = [row[0] for sheet in sheets for row in sheet[1:]]
    assert ids == [sample.row(SEED, number)["id"] for number in range(24_000)]
    assert len(await exports.leftovers()) == 2


@pytest.mark.long
async def test_fetchers_make_the_books_of_a_large_export(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are never staged: the books are parts of the archive, and every row is there once, in order."""
    monkeypatch.delattr(books, "plan_staged_books_and_begin_archive")
    default = DownloadSettings()
    limits = {name: getattr(default, name) for name in ("excel_file_max_bytes", "excel_file_max_rows")}
    large = settings.model_copy(update={"downloads": settings.downloads.model_copy(update=limits)})
    rows = 190_000
    async with running_downloads(large) as exports:
        status = await exports.run(exports.source.url(rows=rows, seed=SEED), type="excel", page_size=400)

        assert status["state"] == "succeeded", status["fault"]
        content = await exports.file(status["task_id"])
        assert len(await exports.leftovers()) == 2
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        members = [CalamineWorkbook.from_filelike(io.BytesIO(archive.read(name))) for name in archive.namelist()]
    ids = [row[0] for book in members for row in book.get_sheet_by_index(0).to_python()[1:]]
    assert len(members) == status["files"] == 2
    assert ids == [sample.row(SEED, number)["id"] for number in range(rows)]


@pytest.mark.long
async def test_books_too_small_for_parts_are_made_again(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows turn out smaller than was seen, the archive is written another way, and nothing else is to be seen."""
    monkeypatch.setattr(books, "PART_MARGIN", 0)

    status = await exports.run(exports.source.url(rows=30_000, seed=SEED), type="excel", file_name="a")

    assert status["state"] == "succeeded", status["fault"]
    with zipfile.ZipFile(io.BytesIO(await exports.file(status["task_id"]))) as archive:
        sheets = [read_sheet(archive.read(name)) for name in archive.namelist()]
    assert [row[0] for sheet in sheets for row in sheet[1:]] == [sample.row(SEED, n)["id"] for n in range(30_000)]
    assert len(await exports.leftovers()) == 2


async def test_the_source_s_template_wins(exports: Downloads) -> None:
    """So do its header and its footer; columns that the template does not show are left out, with a warning."""
    template = {"amount": "金额", "none": "无", "city": "城市"}
    url = exports.source.url(
        rows=3, seed=SEED, template=json.dumps(template), header='{"油站":"钓鱼岛"}', footer='"完"'
    )

    status = await exports.run(url, type="excel", template={"id": "not shown"}, title="标题")

    assert status["state"] == "succeeded", status["fault"]
    assert set(status["left_out"]) == set(sample.row(SEED, 0)) - {"amount", "city"}
    assert any("无" in warning for warning in status["warnings"])
    rows = read_sheet(await exports.file(status["task_id"]))
    texts = [value for row in rows for value in row]
    assert rows[0][0] == "标题"
    assert {"油站", "钓鱼岛", "完"} <= {str(text).rstrip("：:") for text in texts}
    at = rows.index(["金额", "无", "城市"])
    found = [float(sample.row(SEED, n)["amount"]) for n in range(3)]
    assert [row[0] for row in rows[at + 1 : at + 4]] == found


async def test_rows_under_row_heads(exports: Downloads) -> None:
    """A source of three dimensions: rows are beside their row head, whatever their order."""
    cities = sorted({str(sample.row(SEED, n)["city"]) for n in range(60)})
    template = {
        "col": [{"name": "_row_header", "title": "城市"}, {"name": "id", "title": "编号"}],
        "row": [{"name": city} for city in cities],
    }

    content = await export_book(
        exports, source_url=exports.source.url(rows=60, seed=SEED, grouped="city"), template=template, page_size=100
    )

    heads, *rows = read_sheet(content)
    assert heads == ["城市", "编号"]
    expected = [
        (city, sample.row(SEED, n)["id"]) for city in cities for n in range(60) if sample.row(SEED, n)["city"] == city
    ]
    assert [row[1] for row in rows] == [number for _, number in expected]
    shown_cities = [row[0] for row in rows if row[0] is not None]
    assert shown_cities == cities


async def test_rows_that_no_row_head_covers(exports: Downloads) -> None:
    """The download fails and names them."""
    template = {"col": [{"name": "a"}], "row": [{"name": "x"}]}

    status = await export_inline(
        exports, data=[{"a": 1, "_row_head_": "x"}, {"a": 2, "_row_head_": "其他"}], template=template
    )

    assert status["state"] == "failed"
    assert "其他" in status["fault"]["message"]


@pytest.mark.parametrize("multi", ["page", "tab"])
async def test_several_tables(exports: Downloads, multi: str) -> None:
    """Lists make several tables, of a source or of rows of their own, one under another or each on its sheet."""
    content = await export_book(
        exports,
        multi=multi,
        source_url=[exports.source.url(rows=1_200, seed=SEED), None],
        data=[None, [{"a": 1}, {"a": 2}]],
        title=["第一", "第二"],
    )

    sheets = openpyxl.load_workbook(io.BytesIO(content)).sheetnames
    if multi == "tab":
        assert len(sheets) == 2
        first, second = read_sheet(content, 0), read_sheet(content, 1)
    else:
        assert len(sheets) == 1
        rows = read_sheet(content)
        at = [row[0] for row in rows].index("第二")
        first, second = rows[: at - 3], rows[at:]
        assert [value for row in rows[at - 3 : at] for value in row if value is not None] == []
    assert (first[0][0], second[0][0]) == ("第一", "第二")
    assert [row[0] for row in first[2:]] == [sample.row(SEED, n)["id"] for n in range(1_200)]
    assert [row[0] for row in second[1:]] == ["a", 1, 2]


async def test_a_book_that_stays_one_may_not_have_too_many_rows(exports: Downloads) -> None:
    """Nothing is fetched for a book that could not be made."""
    status = await export_inline(
        exports,
        multi="tab",
        source_url=[exports.source.url(rows=20_000, tag="none"), exports.source.url(rows=1)],
    )

    assert (status["state"], status["fault"]["code"]) == ("failed", "excel_too_many_rows")
    assert sum(exports.source.requests(tag="none", page_size=500).values()) <= 1


WHOLE: dict[str, dict[str, Any]] = {
    "row heads": {"template": {"col": [{"name": key} for key in COLUMNS], "row": CITIES}},
    "tables on one page": {"multi": "page"},
    "tables on tabs": {"multi": "tab"},
}


@pytest.mark.parametrize("kind", mark_long_except(WHOLE, ["tables on tabs"]))
async def test_a_book_that_stays_one_may_not_be_too_large(exports: Downloads, kind: str) -> None:
    """It is no larger than a file may be, or the download fails, says so, and leaves no book behind."""
    grouped = {"grouped": "city"} if kind == "row heads" else {}

    def request(rows: int) -> dict[str, Any]:
        urls = [exports.source.url(rows=count, seed=SEED, **grouped) for count in (rows // 2, rows - rows // 2)]
        one = exports.source.url(rows=rows, seed=SEED, **grouped)
        return WHOLE[kind] | {"source_url": one if grouped else urls, "page_size": 1_000}

    fits, does_not = await export_inline(exports, **request(4_000)), await export_inline(exports, **request(16_000))

    assert fits["state"] == "succeeded", fits["fault"]
    assert 200_000 < len(await exports.file(fits["task_id"])) <= 400_000
    assert (does_not["state"], does_not["fault"]["code"]) == ("failed", "excel_too_large")
    assert "at most 400,000 bytes" in does_not["fault"]["message"]
    assert does_not["bytes"] in (None, 0)


async def test_books_of_links_are_not_too_large(exports: Downloads) -> None:
    """What a book holds of its links, beside the cells that show them, counts as well."""
    rows = [{"url": f"https://example.com/{sha256(str(number).encode()).hexdigest()}"} for number in range(9_000)]

    status = await export_inline(exports, data=rows, template=[{"name": "url", "type": "link"}], file_name="a")

    assert status["state"] == "succeeded", status["fault"]
    with zipfile.ZipFile(io.BytesIO(await exports.file(status["task_id"]))) as archive:
        sizes = [member.file_size for member in archive.infolist()]
        names = archive.namelist()
    assert all(name.endswith(".xlsx") for name in names)
    assert len(names) > 1
    assert max(sizes) <= 400_000


@pytest.mark.parametrize("rows", [0, 1])
async def test_a_source_of_little(exports: Downloads, rows: int) -> None:
    """An empty answer is a book of heads alone."""
    template = {"id": "编号"}

    content = await export_book(exports, source_url=exports.source.url(rows=rows, seed=SEED), template=template)

    assert read_sheet(content) == [["编号"], *([[sample.row(SEED, 0)["id"]]] * rows)]


async def test_nothing_at_all_is_a_book(exports: Downloads) -> None:
    """Without rows and without a template there is an empty sheet."""
    content = await export_book(exports, source_url=exports.source.url(rows=0))

    assert [value for row in read_sheet(content) for value in row if value is not None] == []


async def test_a_late_key_is_no_new_column_of_a_template(exports: Downloads) -> None:
    """It is left out with a warning; without a template it would fail the download."""
    url = exports.source.url(rows=1_500, seed=SEED, late_from=1_400)

    status = await exports.run(url, type="excel", template={"id": "编号"})
    without = await exports.run(url, type="excel")

    assert status["state"] == "succeeded", status["fault"]
    assert "late" in status["left_out"]
    assert (without["state"], without["fault"]["code"]) == ("failed", "source_new_column")


async def test_a_bad_template_of_the_source_is_told_with_its_path(exports: Downloads) -> None:
    """The sentence is the one that a request would get."""
    template = json.dumps([{"name": "id", "width": "wide"}])

    status = await exports.run(exports.source.url(rows=3, template=template), type="excel")

    assert (status["state"], status["fault"]["code"]) == ("failed", "source_bad_drawing")
    assert "template[0].width" in status["fault"]["message"]
