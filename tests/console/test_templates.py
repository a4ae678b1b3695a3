"""The template editor of the console: a template as a table and as JSON, its faults at their nodes, the sheet drawn."""

from __future__ import annotations

import io
import json
from urllib.parse import urlsplit

import openpyxl
import pytest
from playwright.async_api import Locator, Page, expect

from api import console
from tests.console import axe
from tests.console.browsing import Troubles
from tests.console.installation import Console, Project

pytestmark = pytest.mark.stack

GROUPED = [
    {"name": "id", "title": "No.", "width": 20},
    {"title": "Amount", "children": [{"name": "paid", "title": "Paid", "type": "number", "format": "#,##0.00"}]},
    {"name": "city", "title": "City", "bg_color": "FFCC00", "align": "left"},
]


async def excel_form(page: Page) -> None:
    """A form for a book."""
    await page.goto("/console/downloads/new")
    await page.get_by_label("Excel", exact=True).check()


async def as_json(page: Page, template: object) -> None:
    """Type a template as JSON."""
    await page.get_by_label("JSON", exact=True).first.check()
    await page.locator(".json-lines textarea").fill(json.dumps(template, indent=2))


def node(page: Page, title: str) -> Locator:
    """The row of a node, by what its title says."""
    return page.locator("tr.node").filter(has=page.locator(f'input[aria-label="Title, {title}"]'))


def cell(page: Page, row: int, column: int) -> Locator:
    """A cell of the drawn sheet, by its place in its row."""
    return page.locator(".sheet tbody tr").nth(row).locator("td").nth(column)


async def style(cell: Locator, name: str) -> str:
    """How the browser draws a cell."""
    return str(await cell.evaluate("(element, name) => getComputedStyle(element)[name]", name))


async def test_a_sheet_is_drawn_as_it_will_look(page: Page) -> None:
    """Heads span their columns and rows, widths and colours are the template's, numbers follow their formats."""
    await excel_form(page)
    await page.get_by_label("Title", exact=True).fill("Sales")
    await as_json(page, GROUPED)
    await expect(cell(page, 0, 0)).to_have_text("Sales")

    await expect(cell(page, 0, 0)).to_have_attribute("colspan", "3")
    await expect(cell(page, 1, 0)).to_have_attribute("rowspan", "2")
    await expect(cell(page, 1, 1)).to_have_text("Amount")
    await expect(cell(page, 3, 1)).to_have_text("1,280.00")
    assert await style(cell(page, 3, 2), "backgroundColor") == "rgb(255, 204, 0)"
    assert await style(cell(page, 3, 2), "textAlign") == "left"
    widths = await page.locator(".sheet col").evaluate_all("all => all.map((each) => parseInt(each.style.width))")
    assert widths[1] == round(20.71 * 7)


async def test_the_rows_of_the_form_are_drawn(page: Page) -> None:
    """Rows that were typed in are in the preview, under columns made from their keys; conditions colour them."""
    await excel_form(page)
    await page.get_by_label("from here").check()
    await page.get_by_label("Rows as JSON").fill('[{"id": 12345678901234567890, "due": -3}, {"id": 2, "due": 4}]')
    await page.get_by_role("button", name="Columns from the rows").click()
    await node(page, "due").get_by_role("button", name="More fields").click()
    await page.get_by_role("button", name="Add a conditional style").click()

    await expect(cell(page, 1, 0)).to_have_text("12345678901234567890")
    await expect(cell(page, 1, 1)).to_have_text("-3")
    await expect(cell(page, 1, 1)).to_have_css("color", "rgb(255, 0, 0)")
    await expect(cell(page, 2, 1)).to_have_css("color", "rgb(0, 0, 0)")


async def test_a_fault_stands_at_its_node(page: Page, troubles: Troubles) -> None:
    """In the table at the field of the node, deep in a group, too; mended, it goes and the sheet is drawn."""
    troubles.expect("422 POST /v1/templates/preview")
    await excel_form(page)
    await as_json(page, GROUPED)
    await page.get_by_label("Table", exact=True).check()
    width = node(page, "Paid").get_by_label("Width")
    await width.fill("900")

    await expect(width).to_have_attribute("aria-invalid", "true")
    faults = page.locator("tr.faults:visible")
    await expect(faults).to_have_count(1)
    await expect(faults).to_contain_text("Width: it is 900; send a number from 1 to 255 (characters)")
    assert await width.get_attribute("aria-describedby") == await faults.locator("ul").get_attribute("id")
    await expect(page.get_by_text("Not drawn: 1 fault.")).to_be_visible()

    await width.fill("30")
    await expect(page.locator("tr.faults:visible")).to_have_count(0)
    await expect(width).not_to_have_attribute("aria-invalid", "true")
    await expect(cell(page, 0, 0)).to_have_text("No.")


@pytest.mark.long
async def test_a_fault_behind_a_fold_opens_it(page: Page, troubles: Troubles) -> None:
    """A conditional style, or a field that no node has, is shown with its fault."""
    troubles.expect("422 POST /v1/templates/preview")
    wrong = [
        {"name": "a", "condition_style": [{"condition": "<> 3 or <> or", "color": "red"}]},
        {"name": "b", "widht": 3},
    ]
    await excel_form(page)
    await as_json(page, wrong)
    await page.get_by_label("Table", exact=True).check()

    await expect(page.locator("tr.faults:visible")).to_have_count(2)
    await expect(page.get_by_label("Where 1")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("widht")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("tr.faults:visible").nth(1)).to_contain_text("did you mean width?")


@pytest.mark.long
async def test_a_fault_stands_at_its_line(page: Page, troubles: Troubles) -> None:
    """In the JSON its line is marked, and its button selects the value."""
    troubles.expect("422 POST /v1/templates/preview")
    await excel_form(page)
    await as_json(page, [{"name": "a"}, {"name": "b", "bg_color": "grey"}])
    await expect(page.locator(".gutter .faulty")).to_have_text("7")
    await page.get_by_role("button", name="Line 7").click()
    selected = "(() => { const a = document.activeElement; return a.value.slice(a.selectionStart, a.selectionEnd); })()"
    assert await page.evaluate(selected) == '"grey"'

    await page.locator(".json-lines textarea").fill('[{"name": "a"')
    await expect(page.locator(".json-faults")).to_contain_text("This is no JSON")
    await page.get_by_label("Table", exact=True).click()
    await expect(page.get_by_label("JSON", exact=True).first).to_be_checked()


async def test_nodes_come_go_and_move_by_keys(page: Page) -> None:
    """Enter adds a column, Alt with arrows moves it into a group and out, and Undo takes it back."""
    await excel_form(page)
    await page.get_by_role("button", name="Add a column").click()
    titles = page.locator("tr.node .of-title input")
    await page.keyboard.type("Group")
    await page.keyboard.press("Enter")
    await page.keyboard.type("Inner")
    await page.keyboard.press("Alt+ArrowRight")
    await expect(titles.nth(1)).to_be_focused()
    await page.get_by_label("JSON", exact=True).first.check()
    box = page.locator(".json-lines textarea")
    assert json.loads(await box.input_value()) == [{"title": "Group", "children": [{"title": "Inner"}]}]

    await page.get_by_label("Table", exact=True).check()
    await titles.nth(1).focus()
    await page.keyboard.press("Alt+ArrowLeft")
    await page.keyboard.press("Alt+ArrowUp")
    await expect(titles.first).to_have_value("Inner")
    await page.get_by_role("button", name="Remove: Group").click()
    await expect(titles).to_have_count(1)
    await page.get_by_role("button", name="Undo").click()
    await expect(titles).to_have_count(2)


@pytest.mark.long
async def test_a_map_is_read_as_nodes(page: Page) -> None:
    """Any form that the API takes can be edited as a table, and says the same afterwards."""
    await excel_form(page)
    await as_json(page, {"row": {"sz": "深圳"}, "ceil": {"id": "编号", "amount": {"title": "金额", "type": "number"}}})
    await page.get_by_label("Table", exact=True).check()
    await expect(page.locator("tr.node")).to_have_count(3)
    await page.get_by_label("JSON", exact=True).first.check()
    assert json.loads(await page.locator(".json-lines textarea").input_value()) == {
        "col": [{"name": "id", "title": "编号"}, {"title": "金额", "type": "number", "name": "amount"}],
        "row": [{"name": "sz", "title": "深圳"}],
    }
    await expect(cell(page, 1, 0)).to_have_text("深圳")


@pytest.mark.long
async def test_row_heads_and_charts_are_edited(page: Page, troubles: Troubles) -> None:
    """Row heads have a table of their own, charts a line each, with their faults."""
    troubles.expect("422 POST /v1/templates/preview")
    await excel_form(page)
    await as_json(page, GROUPED)
    await page.get_by_label("Table", exact=True).check()
    await page.get_by_role("button", name="Add a row head").click()
    await page.keyboard.type("East")
    await page.get_by_role("button", name="Add a chart").click()
    chart = page.get_by_role("group", name="Chart 1")
    await chart.get_by_label("Values").fill("payd")
    await expect(chart).to_contain_text("no column has the key “payd”; did you mean “paid”?")
    await expect(chart.get_by_label("Values")).to_have_attribute("aria-invalid", "true")
    await chart.get_by_label("Values").fill("paid")
    await expect(page.locator(".sheet-charts")).to_have_text("Chart: Lines")


@pytest.mark.long
async def test_several_sheets_are_one_book(page: Page, console: Console, project: Project, troubles: Troubles) -> None:
    """Each table has a panel with its own rows, look and preview; a fault of the second is in its panel."""
    troubles.expect("422 POST /v1/downloads")
    await excel_form(page)
    await page.get_by_label("Several, on named sheets").check()
    await page.get_by_role("button", name="Add a table").click()
    one, two = page.get_by_role("region", name="Table 1"), page.get_by_role("region", name="Table 2")
    for panel, name in ((one, "Paid"), (two, "Paid")):
        await panel.get_by_label("Sheet name").fill(name)
        await panel.get_by_label("from here").check()
        await panel.get_by_label("Rows as JSON").fill('[{"a": 1}]')
    await page.get_by_role("button", name="Start the export").click()
    await expect(two.get_by_label("Sheet name")).to_have_attribute("aria-invalid", "true")
    await expect(one.get_by_label("Sheet name")).not_to_have_attribute("aria-invalid", "true")

    await two.get_by_label("Sheet name").fill("Open")
    await page.get_by_role("button", name="Start the export").click()
    await expect(page.locator(".page-actions .badge")).to_have_text("Ready")
    book = await console.exports(project).file(urlsplit(page.url).path.rpartition("/")[2])
    assert openpyxl.load_workbook(io.BytesIO(book)).sheetnames == ["Paid", "Open"]


NUMBERS = [
    (1280, "General", "1280"),
    (1e15, "General", "1E+15"),
    (-15, "#,##0.00", "-15.00"),
    (0.256, "0.0%", "25.6%"),
    (-3.5, "0.0;(0.0)", "(3.5)"),
    (0, '0;-0;"none"', "none"),
    (12, '[>=10]"many";"few"', "many"),
    (3, '[>=10]"many";"few"', "few"),
    (1_234_567, '0.0,,"M"', "1.2M"),
    (5, '0.00" kg"', "5.00 kg"),
    (1234.5, "[$¥-804]#,##0.00", "¥1,234.50"),
    (12345, "0.00E+00", "1.23E+04"),
    (46027.7291666667, "yyyy-mm-dd hh:mm:ss", "2026-01-05 17:30:00"),
    (46027.73, "h:mm AM/PM", "5:31 PM"),
    (1.5, "[h]:mm", "36:00"),
    (46027, "d mmm yy", "5 Jan 26"),
]


async def test_numbers_are_written_as_excel_writes_them(page: Page) -> None:
    """Digits, sections, conditions, scales, dates and hours."""
    await page.goto("/console/downloads")
    script = """async ([base, cases]) => {
      const { written } = await import(`${base}/js/pages/downloads/numbers.js`);
      return cases.map(([value, format]) => written(value, format).text);
    }"""
    cases = [[value, form] for value, form, _ in NUMBERS]
    assert await page.evaluate(script, [console.load_console_files().versioned_path, cases]) == [
        text for *_, text in NUMBERS
    ]


@pytest.mark.long
async def test_a_template_of_thousands_of_nodes_is_edited(page: Page) -> None:
    """Only the first rows are drawn, and a sheet of thousands of reserved rows shows how many it leaves out."""
    await excel_form(page)
    wide = [{"name": f"k{number}"} for number in range(400)]
    await page.get_by_label("JSON", exact=True).first.check()
    template = {"row": [{"name": "a", "row_count": 110}, {"name": "b"}], "col": wide}
    await page.locator(".json-lines textarea").fill(json.dumps(template))
    await expect(page.get_by_text("301 more columns are not drawn here.")).to_be_visible()
    await page.get_by_label("Table", exact=True).check()
    await expect(page.locator("tr.node")).to_have_count(102)
    await page.get_by_role("button", name="Show 300 more nodes").click()
    await expect(page.locator("tr.node")).to_have_count(302)


@pytest.mark.parametrize(
    "nonsense", ["[1, 2]", '{"col": 7}', '"text"', "true", "[[[[]]]]", '{"a": {"b": {"c": [{}]}}}']
)
@pytest.mark.long
async def test_nonsense_is_told_and_breaks_nothing(page: Page, troubles: Troubles, nonsense: str) -> None:
    """Whatever is typed as a template, the API's own sentence says what is wrong, and the next try is drawn."""
    troubles.expect("422 POST /v1/templates/preview")
    await excel_form(page)
    await page.get_by_label("JSON", exact=True).first.check()
    await page.locator(".json-lines textarea").fill(nonsense)
    await expect(page.locator(".json-faults li").first).to_be_visible()
    await page.get_by_label("Table", exact=True).click()
    await page.get_by_label("JSON", exact=True).first.check()
    await page.locator(".json-lines textarea").fill('{"a": "A"}')
    await expect(cell(page, 0, 0)).to_have_text("A")
    await expect(page.locator(".json-faults li")).to_have_count(0)


@pytest.mark.long
async def test_the_editor_has_no_grave_fault(page: Page, troubles: Troubles, request: pytest.FixtureRequest) -> None:
    """With folds open, faults shown and a sheet drawn, axe finds nothing serious in it."""
    troubles.expect("422 POST /v1/templates/preview")
    script = axe.script(request.config.cache.mkdir("axe"))
    await excel_form(page)
    await page.get_by_role("button", name="Begin with an example").click()
    await expect(page.locator(".sheet")).to_be_visible()
    await node(page, "Open").get_by_role("button", name="More fields").click()
    await page.get_by_role("button", name="Add a row head").click()
    await node(page, "Paid").get_by_label("Width").fill("900")
    await expect(page.locator("tr.faults:visible").first).to_be_visible()
    assert await axe.grave_faults(page, script) == []


@pytest.mark.long
async def test_the_editor_fits_a_telephone(page: Page) -> None:
    """Each node is a card of its fields, and nothing makes the page wider than the screen."""
    await page.set_viewport_size({"width": 360, "height": 740})
    await excel_form(page)
    await page.get_by_role("button", name="Begin with an example").click()
    await node(page, "Open").get_by_role("button", name="More fields").click()
    await expect(page.locator(".sheet")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
