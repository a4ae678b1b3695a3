"""All faults of a template are reported at once, each in a sentence with its path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.template.fields import TemplateFaults
from excel.template.models import TableTemplate
from excel.template.reading import read_template


def list_faults(value: Any) -> list[str]:
    with pytest.raises(TemplateFaults) as caught:
        read_template(value)
    return caught.value.faults


ID = {"id": "No."}
NO_COLUMN = "it has no column; send at least one, or no template for keys as titles."
NO_COL = "it is missing; row heads and charts need column heads, send them."
NO_NAME = "it has neither name nor title; send at least one of them."
NOT_TWICE = "which is there, too; send one of them."
AS_NODE = 'send a node such as {"name": "id", "title": "No."}.'
LEVEL_21 = "template" + "[0].children" * 20


def nest_heads(levels: int) -> list[Any]:
    return [{"title": "t", "children": nest_heads(levels - 1)}] if levels else []


@pytest.mark.parametrize(
    ("template", "path", "sentence"),
    [
        (5, "template", "it is 5; send a list of nodes."),
        ("name", "template", "it is “name”; send a list of nodes."),
        (True, "template", "it is true; send a list of nodes."),
        ([], "template", NO_COLUMN),
        ({}, "template", NO_COLUMN),
        ({"col": []}, "template.col", NO_COLUMN),
        ({"row": ID, "col": [{"name": "__row__"}]}, "template.col", NO_COLUMN),
        ({"row": ID}, "template.col", NO_COL),
        ({"charts": []}, "template.col", NO_COL),
        ({"col": "x", "row": ID}, "template.col", "it is “x”; send a list of nodes."),
        ({"col": ID, "ceil": ID}, "template.ceil", f"it is another word for col, {NOT_TWICE}"),
        (
            {"col": ID, "rows": ID},
            "template.rows",
            "a template of col, row and charts has no such field; did you mean row?",
        ),
        ([5], "template[0]", f"it is 5; {AS_NODE}"),
        ([[]], "template[0]", f"it is an array; {AS_NODE}"),
        ([None], "template[0]", f"it is null; {AS_NODE}"),
        ([""], "template[0]", f"it is empty; {AS_NODE}"),
        ({"a": 5}, "template.a", f"it is 5; {AS_NODE}"),
        ({"a b": True}, "template[“a b”]", f"it is true; {AS_NODE}"),
        ({"0": True}, "template[0]", f"it is true; {AS_NODE}"),
        ([{}], "template[0]", NO_NAME),
        ([{"name": "_"}], "template[0]", NO_NAME),
        ([{"name": "", "title": ""}], "template[0]", NO_NAME),
        ({"row": [{"bg_color": True}], "col": ID}, "template.row[0]", NO_NAME),
        ([{"name": "a", "children": [{"name": "b", "color": 5}]}], "template[0].children[0].color", None),
        ({"col": [ID | {"title": "t"}]}, "template.col[0].id", None),
        (nest_heads(21), LEVEL_21, "it is level 21; a tree of heads may have 20."),
        ([{"name": "a"}] * 2002, "template[2000]", "it is one node too many; a template may have 2,000."),
    ],
)
def test_faults_of_trees(template: Any, path: str, sentence: str | None) -> None:
    """One sentence says what was received, what is allowed, and what to send."""
    found_path, found_sentence = list_faults(template)[0].split(": ", 1)

    assert len(list_faults(template)) == 1
    assert (found_path, found_sentence) == (path, found_sentence if sentence is None else sentence)


WIDTH = "send a number from 1 to 255 (characters) or -1 (automatic), or leave it out."
HEIGHT = "send a number from 1 to 409 (points), or leave it out."
KINDS = "send one of auto, text, number, date, datetime, boolean, rich, link, formula."
HEX = "six hexadecimal digits like FF8800, or one of black, white, red, green, blue, yellow, cyan."
FIELDS = (
    "it may have name, title, type, format, width, height, wrap, align, v-align, v_align, valign, color, bold, "
    "bg_color, children, condition_style."
)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", True, "it is true; send a text."),
        ("name", "a" * 1001, "it has 1,001 characters; send 1,000 or less."),
        ("title", ["t"], "it is an array; send a text."),
        ("title", "t" * 1001, "it has 1,001 characters; send 1,000 or less."),
        ("type", "money", f"it is “money”; {KINDS}"),
        ("type", 1, f"it is 1; {KINDS}"),
        ("format", False, "it is false; send a text."),
        ("format", "0" * 256, "it has 256 characters; send 255 or less."),
        ("width", 0, f"it is 0; {WIDTH}"),
        ("width", -2, f"it is -2; {WIDTH}"),
        ("wrap", "yes", "it is “yes”; send true or false."),
        ("width", 0.5, f"it is 0.5; {WIDTH}"),
        ("width", 255.5, f"it is 255.5; {WIDTH}"),
        ("width", "wide", f"it is “wide”; {WIDTH}"),
        ("width", True, f"it is true; {WIDTH}"),
        ("width", 10**100, f"it is a number of more than 60 digits; {WIDTH}"),
        ("width", float("nan"), f"it is nan; {WIDTH}"),
        ("height", -1, f"it is -1; {HEIGHT}"),
        ("height", 410, f"it is 410; {HEIGHT}"),
        ("align", "middle", "it is “middle”; send one of left, center, right."),
        ("valign", "center", "it is “center”; send one of top, middle, bottom."),
        ("color", "grey", f"it is “grey”; send {HEX}"),
        ("color", True, f"it is true; send {HEX}"),
        ("color", "#1234", f"it is “#1234”; send {HEX}"),
        ("bg_color", "grey", f"it is “grey”; send true, {HEX}"),
        ("bg_color", 2, f"it is 2; send true, {HEX}"),
        ("bold", "very", "it is “very”; send true or false."),
        ("bold", 1.0, "it is 1.0; send true or false."),
        ("bold", {}, "it is an object; send true or false."),
        ("children", 5, "it is 5; send a list of nodes."),
        ("widht", 3, "a column has no such field; did you mean width?"),
        ("bgColor", True, "a column has no such field; did you mean bg_color?"),
        ("row_count", 3, f"a column has no such field; {FIELDS}"),
    ],
)
def test_faults_of_columns(field: str, value: Any, sentence: str) -> None:
    """Each field knows what it may hold."""
    assert list_faults([{"title": "a", field: value}]) == [f"template[0].{field}: {sentence}"]


def test_two_vertical_alignments() -> None:
    """Two spellings of one field could contradict each other."""
    assert list_faults([{"name": "a", "v-align": "top", "v_align": "bottom"}]) == [
        f"template[0].v_align: it is another word for v-align, {NOT_TWICE}"
    ]


SUCH_STYLE = 'send one such as {"condition": "< 0", "color": "red"}.'
SUCH_CONDITION = "send one such as >=0 or <=-10."
STYLE_FIELDS = "a conditional style has no such field; it may have condition, color, bold, bg_color."


@pytest.mark.parametrize(
    ("styles", "path", "sentence"),
    [
        (["<0"], "[0]", f"it is “<0”; {SUCH_STYLE}"),
        ("<0", "", f"it is “<0”; {SUCH_STYLE}"),
        ([{"color": "red"}], "[0].condition", f"it is missing; {SUCH_CONDITION}"),
        ({"condition": 5}, ".condition", f"it is 5; {SUCH_CONDITION}"),
        ({"0": {"condition": "> >3"}}, "[0].condition", "at character 3 (“>3”): expected a value."),
        ([{"condition": ">0", "width": 3}], "[0].width", STYLE_FIELDS),
        ([{"condition": ">0", "bold": 5}], "[0].bold", "it is 5; send true or false."),
        ([{"condition": ">0"}] * 22, "[20]", "it is one style too many; a node may have 20."),
    ],
)
def test_faults_of_conditional_styles(styles: Any, path: str, sentence: str) -> None:
    """A style needs a condition, and the condition's own fault has its position."""
    assert list_faults([{"name": "a", "condition_style": styles}]) == [f"template[0].condition_style{path}: {sentence}"]


ROW_COUNT = "send a whole number from 1 to 100,000, or leave it out."
ROW_FIELDS = "a row head has no such field; it may have name, title, bg_color, row_count, children."
CROWD = [{"name": str(place), "row_count": 90_000} for place in range(12)]


@pytest.mark.parametrize(
    ("rows", "path", "sentence"),
    [
        ({"name": "r", "width": 3}, ".width", ROW_FIELDS),
        ([{"name": "r", "row_count": 0}], "[0].row_count", f"it is 0; {ROW_COUNT}"),
        ([{"name": "r", "row_count": 1.5}], "[0].row_count", f"it is 1.5; {ROW_COUNT}"),
        ([{"name": "r", "row_count": 100_001}], "[0].row_count", f"it is 100001; {ROW_COUNT}"),
        (CROWD, "", "it keeps 1,080,000 rows; a sheet can hold 1,000,000."),
        (
            [{"title": "g", "row_count": 2, "children": ID}],
            "[0].row_count",
            "a group has the rows of its children; leave it out.",
        ),
        (
            [{"name": "r"}, {"title": "g", "children": {"r": "R"}}],
            "[1].children.r.name",
            "it is “r”, as that of template.row[0] is; send another.",
        ),
    ],
)
def test_faults_of_row_heads(rows: Any, path: str, sentence: str) -> None:
    """A key leads to one row head, and the rows that all of them keep fit a sheet."""
    assert list_faults({"row": rows, "col": ID}) == [f"template.row{path}: {sentence}"]


@pytest.mark.parametrize(
    ("columns", "path", "sentence"),
    [
        (
            [{"name": "__row__"}, {"name": "_row_head_"}, {"name": "a"}],
            "[1]",
            "it represents the column of row heads, as template.col[0] does; leave one out.",
        ),
        (
            [{"title": "g", "children": {"__row__": "R"}}],
            "[0].children.__row__",
            "__row__ represents the column of row heads; move it out of its group.",
        ),
    ],
)
def test_faults_of_the_column_of_row_heads(columns: Any, path: str, sentence: str) -> None:
    """There is one, at the top."""
    assert list_faults({"row": ID, "col": columns}) == [f"template.col{path}: {sentence}"]


CHART_KINDS = "send one of line, column, bar, pie."
CHART_FIELDS = "a chart has no such field; it may have type, title, categories, values."


@pytest.mark.parametrize(
    ("charts", "path", "sentence"),
    [
        ("line", "", 'it is “line”; send a chart such as {"type": "line", "values": ["amount"]}.'),
        ([{"type": "area", "values": "id"}], "[0].type", f"it is “area”; {CHART_KINDS}"),
        ([{"values": "id"}], "[0].type", f"it is missing; {CHART_KINDS}"),
        ([{"type": "bar"}], "[0].values", "it is missing; send the key of a column, or several."),
        ([{"type": "bar", "values": [None]}], "[0].values[0]", "it is null; send the key of a column."),
        ([{"type": "bar", "values": ["ids"]}], "[0].values[0]", "no column has the key “ids”; did you mean “id”?"),
        ([{"type": "bar", "values": "x"}], "[0].values", "no column has the key “x”; send one of “id”, “no”."),
        ([{"type": "bar", "values": "g"}], "[0].values", "no column has the key “g”; send one of “id”, “no”."),
        (
            {"type": "bar", "values": "id", "categories": "x"},
            ".categories",
            "no column has the key “x”; send one of “id”, “no”.",
        ),
        ([{"type": "pie", "values": ["id", "no"]}], "[0].values", "it has 2 columns; a pie shows one."),
        (
            [{"type": "bar", "values": "id", "title": "t" * 256}],
            "[0].title",
            "it has 256 characters; send 255 or less.",
        ),
        ([{"type": "bar", "values": "id", "style": 1}], "[0].style", CHART_FIELDS),
        ([{"type": "bar", "values": "id"}] * 22, "[20]", "it is one chart too many; a template may have 20."),
        (
            [{"type": "bar", "values": ["id"] * 257}],
            "[0].values[255]",
            "it is one column too many; a chart may have 255.",
        ),
    ],
)
def test_faults_of_charts(charts: Any, path: str, sentence: str) -> None:
    """A chart shows columns that are there; a group is none."""
    columns = [{"name": "id"}, {"name": "g", "title": "Group", "children": {"no": "No."}}]

    assert list_faults({"col": columns, "charts": charts}) == [f"template.charts{path}: {sentence}"]


def test_many_keys_are_not_all_listed() -> None:
    """Ten keys give the idea."""
    columns = {f"k{place}": "" for place in range(11)}

    fault = list_faults({"col": columns, "charts": {"type": "bar", "values": "?"}})[0]

    assert fault.endswith("send one of “k0”, “k1”, “k2”, “k3”, “k4”, “k5”, “k6”, “k7”, “k8”, “k9”, ….")


def test_all_faults_at_once() -> None:
    """Who mends a template mends it once; places begin as the caller asks."""
    template: Any = {
        "row": [{"name": "r", "row_count": -1}],
        "ceil": [{"nam": "a"}, {"name": "b", "width": 0, "bold": "x"}],
    }

    with pytest.raises(TemplateFaults) as caught:
        read_template(template, "sheets[1].template")

    assert [fault.split(": ")[0] for fault in caught.value.faults] == [
        "sheets[1].template.ceil[0].nam",
        "sheets[1].template.ceil[0]",
        "sheets[1].template.ceil[1].width",
        "sheets[1].template.ceil[1].bold",
        "sheets[1].template.row[0].row_count",
    ]
    assert str(caught.value) == " ".join(caught.value.faults)


def test_faults_are_bounded() -> None:
    """A broken generator makes the same mistake a thousand times; twenty sentences say it."""
    with pytest.raises(TemplateFaults) as caught:
        read_template([{"name": "a", "witdh": 1}] * 1000)

    assert (len(caught.value.faults), caught.value.count) == (20, 1000)
    assert str(caught.value).endswith("did you mean width? There are 980 more.")


def test_sentences_can_always_be_sent() -> None:
    """Half of a surrogate pair, a novel or an endless number in the wrong place does not get into a message."""
    faults = list_faults([{"name": "a", "color": "\ud800", "\udfff" * 100: 1, "align": "l" * 10_000, "bold": 10**5000}])

    assert len(faults) == 4
    assert all(len(fault.encode()) < 1000 for fault in faults)


@pytest.mark.parametrize("wrapped", [lambda inner: [inner], lambda inner: {"children": inner}])
@pytest.mark.parametrize("start", [[], [{"name": "a", "children": 1}]])
def test_bottomless_trees(wrapped: Any, start: Any) -> None:
    """A tree may be as deep as JSON readers take it: the walk ends before it exhausts the stack."""
    value = start
    for _ in range(5_000):
        value = wrapped(value) if start == [] else [{"name": "a", "children": value}]

    assert list_faults(value)


WORDS = (
    "name title type format width height wrap align v-align v_align color bold bg_color condition_style "
    "condition children row_count row col ceil charts categories values _ __row__ _row_head_ 0 1 a b red #fff number "
    "0.00 >0 <>x line pie true false"
)
words = st.sampled_from(WORDS.split())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)
some_fields = dict.fromkeys(("title", "type", "width", "bg_color", "condition_style"), json_values)
nodes: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries({"name": words}, optional=some_fields | {"children": st.lists(nodes, max_size=3)})
)
lists_of_nodes = st.lists(nodes, max_size=4)
near_templates = lists_of_nodes | st.fixed_dictionaries(
    {"col": lists_of_nodes}, optional={"row": lists_of_nodes | json_values, "charts": json_values}
)


@given(json_values | near_templates)
def test_any_value_is_a_template_or_has_faults(value: Any) -> None:
    """Nothing that JSON can say brings the reader down, and what it lets through can be drawn."""
    faults, template = read(value)

    assert len(faults) <= 20
    assert all(fault.startswith("template") and ": " in fault for fault in faults)
    "".join(faults).encode()  # a surrogate would break a message
    assert (template is None) == bool(faults)
    if template is not None:
        shown = {key for chart in template.charts for key in (*chart.values, chart.categories) if key is not None}
        assert template.leaves
        assert 1 <= template.depth <= 20
        assert shown <= set(template.keys)


def read(value: Any) -> tuple[list[str], TableTemplate | None]:
    try:
        return [], read_template(value)
    except TemplateFaults as caught:
        return caught.faults, None
