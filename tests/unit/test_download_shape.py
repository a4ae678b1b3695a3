"""A shape chooses the cells of a file: what a template uses, what it leaves out, and rows in groups."""

from __future__ import annotations

import pytest

from domain.downloads.models import FileType
from domain.downloads.pages import NewColumnsFound, SourcePage, read_first_page
from domain.downloads.shape import LEFT_OUT_MAX, ShapedPageReader, TableShape, choose_table_shape
from domain.faults import SourceFault
from excel.template.models import ROW_HEAD_NAMES, TableTextsAndTemplate

GROUPED = b'{"total": 3, "data": {"east": [{"a": 1, "b": 2}, {"a": 3, "b": 4}], "west": [{"a": 5, "b": 6}]}}'
UNDER_ROWS = {"col": [{"name": "a"}], "row": [{"name": "east"}, {"name": "west"}]}


def cells(page: SourcePage) -> list[list[str]]:
    return [[bytes(cell).decode() for cell in row] for row in page.rows]


def shape(body: bytes, template: object = None, kind: FileType = FileType.EXCEL) -> TableShape:
    return choose_table_shape(kind, read_first_page(body), TableTextsAndTemplate.model_validate({"template": template}))


def test_without_a_template_every_key_is_a_column() -> None:
    """Nothing may be left out then, so a late key is one too many."""
    found = shape(b'{"total": 1, "data": [{"a": 1, "b": 2}]}')

    assert found == TableShape(columns=["a", "b"], left_out=None)
    with pytest.raises(NewColumnsFound):
        ShapedPageReader(found).read(b'{"data": [{"c": 1}]}')


def test_a_template_selects_and_says_what_it_leaves_out() -> None:
    """Keys that it does not list are named, those of the first page and those that come later."""
    found = shape(b'{"total": 2, "data": [{"a": 1, "x": 2, "b": 3}]}', {"b": "B", "a": "A", "none": "N"})
    reader = ShapedPageReader(found)

    page = reader.read(b'{"data": [{"x": 9, "a": 1, "b": 2}, {"late": 7, "b": 3}]}')

    assert found == TableShape(columns=["b", "a", "none"], left_out=["x"], keys=["a", "x", "b"])
    assert cells(page) == [["2", "1", "null"], ["3", "null", "null"]]
    assert reader.left_out_keys_beyond_shape == ["late"]


def test_an_endless_supply_of_keys_is_a_fault() -> None:
    """Names of keys travel in the result, so their number has a bound."""
    reader = ShapedPageReader(TableShape(columns=["a"], left_out=[]))
    row = ",".join(f'"k{n}":1' for n in range(LEFT_OUT_MAX + 1))

    with pytest.raises(SourceFault, match=r"5,001 keys that the template does not show; at most 5,000"):
        reader.read(b'{"data": [{%b}]}' % row.encode())


def test_keys_of_the_first_page_have_bounds_too() -> None:
    """They travel with every step, and a step with megabytes of them is never taken."""
    row = ",".join(f'"{n}{"k" * 1_000}":1' for n in range(101))

    with pytest.raises(SourceFault, match=r"101 keys that the template does not show; .* 100,000 characters in all"):
        shape(b'{"total": 1, "data": [{"a": 1, %b}]}' % row.encode(), {"a": "A"})


@pytest.mark.parametrize(
    "body",
    [
        GROUPED,
        b'{"status": 200, "msg": "", "data": ' + GROUPED + b"}",
        b'{"data": {"data": {"east": [{"a": 1, "b": 2}, {"a": 3, "b": 4}], "west": [{"a": 5, "b": 6}]}}}',
    ],
    ids=["bare", "envelope", "envelope without total"],
)
def test_groups_become_rows_with_the_name_of_their_group(body: bytes) -> None:
    """A page of three dimensions is flat rows with one more cell."""
    found = shape(body, UNDER_ROWS)

    assert found == TableShape(
        columns=["a", ROW_HEAD_NAMES[-1]], left_out=["b"], keys=["a", "b"], row_head=ROW_HEAD_NAMES[-1]
    )
    assert cells(ShapedPageReader(found).read(body)) == [["1", '"east"'], ["3", '"east"'], ["5", '"west"']]


@pytest.mark.parametrize("data", [b"[]", b"{}"])
def test_a_page_without_groups_is_an_empty_page(data: bytes) -> None:
    """Some languages write an empty map as a list."""
    reader = ShapedPageReader(TableShape(columns=["a", "_row_head_"], left_out=[], row_head="_row_head_"))

    assert reader.read(b'{"total": 0, "data": %b}' % data).rows == []


@pytest.mark.parametrize("name", ROW_HEAD_NAMES)
def test_flat_rows_may_name_their_row_head(name: str) -> None:
    """The column of row heads has any of its names, and comes last."""
    found = shape(b'{"total": 1, "data": [{"%b": "east", "a": 1}]}' % name.encode(), UNDER_ROWS)

    assert found == TableShape(columns=["a", name], left_out=[], keys=[name, "a"], row_head=None)


@pytest.mark.parametrize(
    ("body", "template", "kind", "sentence"),
    [
        (GROUPED, None, FileType.CSV, "an object of lists, which only Excel shows"),
        (GROUPED, {"a": "A"}, FileType.EXCEL, "the template has no row heads to put them under"),
        (b'{"total": 1, "data": [{"a": 1}]}', UNDER_ROWS, FileType.EXCEL, "no row of the first page has one of the"),
    ],
    ids=["csv", "no row heads", "no row key"],
)
def test_rows_that_the_file_cannot_show_are_a_fault(
    body: bytes, template: object, kind: FileType, sentence: str
) -> None:
    """The fault comes before another page is fetched."""
    with pytest.raises(SourceFault, match=sentence):
        shape(body, template, kind)


def test_groups_of_anything_but_rows_are_a_fault() -> None:
    """The sentence says where."""
    reader = ShapedPageReader(TableShape(columns=["a", "_row_head_"], left_out=[], row_head="_row_head_"))

    with pytest.raises(SourceFault, match=r"A row of the source is not an object: data\[0\]"):
        reader.read(b'{"total": 1, "data": {"east": [1]}}')
