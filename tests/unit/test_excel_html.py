"""HTML in cells becomes runs of text; what is no HTML stays what it is."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.html import TextRun, parse_html, truncate_runs
from excel.texts import replace_control_characters, replace_invalid_characters

BOLD, ITALIC, UNDERLINE = TextRun("", bold=True), TextRun("", italic=True), TextRun("", underline=True)


def join_runs(text: str) -> str:
    """What the runs say together."""
    return "".join(run.text for run in parse_html(text))


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", []),
        ("plain", [TextRun("plain")]),
        ("<b>a</b>b", [TextRun("a", bold=True), TextRun("b")]),
        ("<strong>a</strong><em>b</em>", [TextRun("a", bold=True), TextRun("b", italic=True)]),
        ("<B>a<I>b</B>c</I>", [TextRun("a", bold=True), TextRun("b", bold=True, italic=True), TextRun("c")]),
        ("<u>a<b>b", [TextRun("a", underline=True), TextRun("b", underline=True, bold=True)]),
        ("</b>a</i>", [TextRun("a")]),
        ("<b></b><i></i>", []),
        ("<b>&#1;</b>", []),
        ("<b>a</b><b>b</b>", [TextRun("ab", bold=True)]),
        ("<font color=red>a</font>", [TextRun("a", color="FF0000")]),
        ('<font color="#0f8">a</font>', [TextRun("a", color="00FF88")]),
        ("<font color='#00ff7f'>a</font>", [TextRun("a", color="00FF7F")]),
        ("<font color=nonsense>a</font>", [TextRun("a")]),
        ('<span style="color: rgb(300, 0, 16)">a</span>', [TextRun("a", color="FF0010")]),
        ('<span style="COLOR:Blue !important; font-weight:700">a</span>', [TextRun("a", color="0000FF", bold=True)]),
        (
            "<span style='font-style:italic;text-decoration:underline dotted'>a</span>",
            [TextRun("a", italic=True, underline=True)],
        ),
        ('<a href="http://a.b/?x>y">a</a>', [TextRun("a")]),
        ("<b>a<!-- <i>hidden</i> -->b</b>", [TextRun("ab", bold=True)]),
    ],
)
def test_looks(text: str, runs: list[TextRun]) -> None:
    """Bold, italic, underlined and coloured pieces are runs of their own; equal neighbours are one."""
    assert parse_html(text) == runs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a<br>b<br/>c<BR />d", "a\nb\nc\nd"),
        ("<p>a</p><p>b</p>", "a\nb"),
        ("a<p>b</p>c", "a\nb\nc"),
        ("<div><div>a</div></div>\n<div>b</div>", "a\nb"),
        ("<p>a</p><br><p>b</p>", "a\n\nb"),
        ("<br>a<br><br>", "\na"),
        ("<ul><li>a</li><li>b</li></ul>c", "• a\n• b\nc"),
        ("<ul>\n  <li><p>a</p></li>\n  <li>b\n</ul>", "• a\n• b"),
        ("<ol><li>a<li>b<ul><li>c</ul><li>d</ol>", "1. a\n2. b\n  • c\n3. d"),
        ("<ul><li></li><li>b</li></ul>", "• \n• b"),
        ("<li>a", "• a"),
        ("<h1>a</h1>b", "a\nb"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
        (" <b> a \n b </b>\t c ", "a b c"),
        ("<b>a</b> <i>b</i>", "a b"),
        ("a <br> b", "a\nb"),
        ("a&nbsp;&nbsp;b<br>", "a\xa0\xa0b"),
    ],
)
def test_lines(text: str, says: str) -> None:
    """Lines begin where a browser begins them, lists have bullets and numbers, white space is one space."""
    assert join_runs(text) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a < b and c > d", "a < b and c > d"),
        ("List<String> items", "List<String> items"),
        ("1<2", "1<2"),
        ("<", "<"),
        ("a <b", "a <b"),
        ("<!-- not closed", "<!-- not closed"),
        ("<b", "<b"),
        ("two  spaces\n and  lines ", "two  spaces\n and  lines "),
        ("a\r\nb\rc", "a\nb\nc"),
        ("&lt;b&gt; &amp;amp; &#20013;&#x6587; &eacute;", "<b> &amp; 中文 é"),
        ("a&region=1&copy", "a&region=1&copy"),
        ("&unknown; &#xZZ; &", "&unknown; &#xZZ; &"),
        ("&#0;&#x1;&#xD800;&#xFFFF;\x07", "\ufffd\ufffd\ufffd"),
    ],
)
def test_what_is_no_element_stays(text: str, says: str) -> None:
    """Only elements of HTML are taken for elements; entities end with a semicolon."""
    assert parse_html(text) == [TextRun(says)]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert('<b>')</script>",
        "<SCRIPT src=x>\n if (a < b) </b> </Script >",
        "<style>b { color: red }</style>",
        "<script>never closed <b>a</b>",
        "<iframe src=x></iframe>",
        "<head><title>t</title></head>",
    ],
)
def test_scripts_leave_nothing(text: str) -> None:
    """What a browser would run or hide is not shown."""
    assert join_runs(f"a{text}") == "a"


def test_runs_are_cut_like_texts() -> None:
    """Runs that are too long together are cut, and the cut is reported."""
    pieces = [TextRun("a" * 32_000, bold=True), TextRun("😀" * 400), TextRun("lost")]

    kept, cut = truncate_runs(pieces)

    assert cut
    assert kept == [pieces[0], TextRun("😀" * 383)]
    assert truncate_runs(pieces[:1]) == (pieces[:1], False)


Tree: TypeAlias = "list[str | tuple[str, Tree]]"
WORDS = st.text("ab中😀", min_size=1, max_size=4)
TREES = st.recursive(
    st.lists(WORDS, max_size=3), lambda inner: st.lists(WORDS | st.tuples(st.sampled_from("biu"), inner))
)


def write_html(tree: Tree) -> str:
    """The HTML of a tree."""
    return "".join(part if isinstance(part, str) else f"<{part[0]}>{write_html(part[1])}</{part[0]}>" for part in tree)


def list_characters(tree: Tree, look: TextRun) -> list[tuple[str, TextRun]]:
    """Every character with its look, the plain way."""
    found = []
    for part in tree:
        if isinstance(part, str):
            found += [(character, look) for character in part]
        else:
            inner = {"b": replace(look, bold=True), "i": replace(look, italic=True), "u": replace(look, underline=True)}
            found += list_characters(part[1], inner[part[0]])
    return found


@given(TREES)
def test_nested_elements_add_up(tree: Tree) -> None:
    """Each character has the look of all elements around it."""
    grouped = groupby(list_characters(tree, TextRun("")), key=lambda pair: pair[1])
    expected = [replace(look, text="".join(character for character, _ in pairs)) for look, pairs in grouped]

    assert parse_html(write_html(tree)) == expected


PIECES = [
    "<",
    ">",
    "</",
    "b>",
    "<b>",
    "</b>",
    "<li>",
    "<ol>",
    "</ol>",
    "<p>",
    "<br>",
    "<!--",
    "-->",
    "<script>",
    "&",
    "&#1;",
]
PIECES += [
    "<td>",
    "'",
    '"',
    "=",
    " ",
    "\n",
    "<font color=",
    "<span style='color:red'>",
    "\x00",
    "\ud800",
    "中",
    ";",
    "\r",
]


@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text(st.characters(codec=None, exclude_categories=())))
def test_reading_never_fails(text: str) -> None:
    """Whatever the text, runs are safe, none is empty, and neighbours differ."""
    found = parse_html(text)

    assert all(run.text for run in found)
    assert all(replace(one, text="") != replace(other, text="") for one, other in pairwise(found))
    whole = "".join(run.text for run in found)
    assert replace_invalid_characters(replace_control_characters(whole)) == whole


@pytest.mark.parametrize(
    "piece", ["<", '<a "', "<a '\"", "<!--", "<b>", "<li>", "</ol>", "&#1", "<script", "<p><ul>", " \n"]
)
def test_reading_takes_time_in_proportion(piece: str) -> None:
    """No text of some hundred thousand characters keeps a processor busy."""
    text = piece * (300_000 // len(piece))
    before = time.process_time()

    parse_html(text)

    assert time.process_time() - before < 20
