"""A flat page becomes the very bytes that its cells would become one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.flat import CellGrid, CellGridFinder
from domain.downloads.models import TextEncoding
from domain.downloads.pages import NewColumnsFound, PageReader
from domain.downloads.shape import EncodedPage, PageEncoder, TableShape
from domain.downloads.sinks import csv
from domain.downloads.sinks.csv import CsvSink
from domain.faults import SourceFault

Outcome = EncodedPage | tuple[Any, ...]


def encode_page(columns: list[str], body: bytes, encoding: TextEncoding, guard: bool) -> Outcome:
    """What is staged of a page."""
    encoder = PageEncoder(TableShape(columns=columns), CsvSink(encoding, guard))
    # Keys that come twice and halves of surrogate pairs are looked for beside the cells, in other modules.
    return catch_fault(lambda: replace(encoder.encode(body), repeated_keys=(), has_lone_surrogate=False))


def encode_by_cells(columns: list[str], body: bytes, encoding: TextEncoding, guard: bool) -> Outcome:
    """The same, from every cell on its own."""

    def encode() -> EncodedPage:
        page = PageReader(columns).read(body)
        return EncodedPage(page.total, len(page.rows), csv.encode_rows(page.rows, encoding, guard=guard))

    return catch_fault(encode)


def catch_fault(encode: Any) -> Outcome:
    """The page, or what is wrong with it."""
    try:
        page: EncodedPage = encode()
    except SourceFault as fault:
        return fault.record.sentence, fault.transient
    except NewColumnsFound as found:
        return found.names, found.place
    return page


def is_flat(columns: list[str], data: bytes) -> bool:
    """Whether a list of rows is cut at its marks."""
    return isinstance(CellGridFinder(columns).find_grid(data), CellGrid)


@pytest.mark.parametrize(
    "data",
    [
        b'[{"a":1,"b":"x"},{"a":null,"b":"y"}]',
        b'[{"a": 1, "b": "x"}, {"a": null, "b": "y"}]',
        b'[{"a": 1,"b": 2}]',
        b'[ { "a" : 1 ,\r\n "b" : "x" } ]',
        rb'[{"a":"C:\\dir\\","b":"say \"hi\""}]',
        rb'[{"a":"{\"a\":1,\"b\":2}","b":"\\\":"}]',
        b'[{"a":"=1","b":""},{"a":true,"b":-1.50e7},{"a":false,"b":"null"}]',
        '[{"a":"上海, {x} [y]","b":"},{"}]'.encode(),
    ],
)
def test_flat_pages(data: bytes) -> None:
    """Spaces, escapes and brackets in texts do not keep a page from being cut."""
    assert is_flat(["a", "b"], data)
    body = b'{"total":9,"data":%b}' % data
    assert encode_page(["a", "b"], body, TextEncoding.UTF_8, True) == encode_by_cells(
        ["a", "b"], body, TextEncoding.UTF_8, True
    )


@pytest.mark.parametrize(
    ("columns", "data"),
    [
        ("a b", b"[]"),
        ("a b", b'[{"b":1,"a":2}]'),  # another order
        ("a b", b'[{"a":1,"b":2},{"a":1}]'),  # a key is missing
        ("a b", b'[{"a":1,"b":2,"a":3,"b":4}]'),  # keys twice
        ("a b", b'[{"a":1,"b":2},{"a":1,"b":2,"c":3}]'),  # a new key
        ("a b", b'[{"a":1,"c" :3,"b":2}]'),  # a new key behind a space
        ("a b", rb'[{"a":1,"c\\":3,"b":2}]'),  # a new key that ends in a backslash
        ("a b", rb'[{"a":"\\","c" :3,"b":"\\"}]'),  # a new key that only its quotes reveal
        ("a thirteen_long", b'[{"a":1,"b":2},{"a":1,"thirteen_long":2}]'),  # a mark that is found from the end
        ("a b", rb'[{"a":1,"\u0062":2}]'),  # a key in another spelling
        ("a", b'[{"a":1},{},{"a":2}]'),
        ("a", b'[{},{"a":1}]'),
        ("a", b'[{"a":1},{}]'),
        ("a", b'[{"a":1},5]'),
        ("a", b'[{"a":1},55]'),
        ("a", b'[{"a":1},5,{},{"a":2}]'),
        ("a", b'[[{"a":1}],{"a":2}]'),
        ("a", b'[{"a":{"a":1}}]'),
        ("a", b'[{"a":[{},{"a":1}]}]'),
        ("a", b'[{"a":[1,2]},{"a":[]},{"a":{}}]'),
        ("a b", b'[{"a":1,"b":[{},{"a":3,"b":4}]}]'),
        ("a ,", b'[{"a":"x,",":)":1}]'),  # a name that can occur between texts
        ("a ,", b'[{"a":1,",":2}]'),
        ("a b:", b'[{"a":1,"b:":2}]'),
        ("a", b'{"a":1}'),
        ("", b"[{},{}]"),
    ],
)
def test_pages_that_are_not_flat(columns: str, data: bytes) -> None:
    """A page that does not consist of the columns' cells alone is read cell by cell, and its faults are reported."""
    assert not is_flat(columns.split(), data)
    body = b'{"total":9,"data":%b}' % data
    assert encode_page(columns.split(), body, TextEncoding.UTF_8, True) == encode_by_cells(
        columns.split(), body, TextEncoding.UTF_8, True
    )


def test_cells_outside_the_guard() -> None:
    """Without the guard signs stay; with it they do not, in texts alone."""
    grid = CellGridFinder(["a"]).find_grid(rb'[{"a":"=1"},{"a":-1},{"a":"\n"},{"a":"\u003d1"}]')
    assert isinstance(grid, CellGrid)
    assert csv.encode_grid(grid, guard=False) == b'"=1"\r\n-1\r\n"\n"\r\n"=1"\r\n'


KEYS = ["a", "b", "名 前", "x{y}", "", "a,b", 'a"b', "é\\"]
PIECES = [
    *"=+-@,:{}[]\\\"'\t\n\x1f\x00 ax上😀",
    "null",
    "\\\\",
    '","a":',
    '},{"a":',
    '":',
    "}]",
    "\ufffd",
    "\ud83d",
    "\ude00",
]
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
anything = plain | st.recursive(
    plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2)
)
separators = st.tuples(st.sampled_from([",", ", ", " ,", ",\n "]), st.sampled_from([":", ": ", " :"]))


@given(
    columns=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    data=st.data(),
    escaped=st.booleans(),
    spaces=separators,
    is_wrapped=st.booleans(),
    encoding=st.sampled_from(TextEncoding),
    guard=st.booleans(),
)
def test_any_page(
    columns: list[str],
    data: st.DataObject,
    escaped: bool,
    spaces: tuple[str, str],
    is_wrapped: bool,
    encoding: TextEncoding,
    guard: bool,
) -> None:
    """However a page is written: with the same keys in the same order, or nearly, and with depth, or none."""
    values = data.draw(st.sampled_from([plain, anything]))
    row: Any = st.tuples(*(values for _ in columns)).map(lambda cells: dict(zip(columns, cells, strict=True)))
    if data.draw(st.booleans()):
        row |= st.dictionaries(st.sampled_from(KEYS), values, max_size=3) | anything
    page: dict[str, Any] = {"total": 7, "data": data.draw(st.lists(row, max_size=4))}
    body = json.dumps(
        {"status": 200, "msg": "", "data": page} if is_wrapped else page, ensure_ascii=escaped, separators=spaces
    ).encode(errors="surrogatepass")

    assert encode_page(columns, body, encoding, guard) == encode_by_cells(columns, body, encoding, guard)


TOKENS = [
    b'"a":',
    b'"b":',
    b'"a" :',
    b"1",
    b"null",
    b'"x"',
    rb'"\""',
    rb'"\\"',
    b",",
    b"}",
    b"{",
    b"},{",
    b"[",
    b"]",
    b" ",
]


@given(
    st.lists(st.sampled_from(TOKENS), max_size=30), st.lists(st.sampled_from(TOKENS), max_size=3), st.integers(0, 30)
)
def test_no_text_is_cut_wrongly(tokens: list[bytes], planted: list[bytes], place: int) -> None:
    """Rows into which something was planted are what the reader says they are."""
    row = b'{"a":1,"b":"x"}'
    pieces = [
        b"{",
        b'"a":',
        b"1",
        b",",
        b'"b":',
        b'"x"',
        b"}",
        b",",
        row,
        b",",
        b"{",
        b'"a":',
        b'"y"',
        b",",
        b'"b":',
        b"2",
        b"}",
    ]
    pieces[place:place] = planted
    for data in (b"".join(pieces), b"".join(tokens)):
        body = b'{"data":[%b]}' % data
        assert encode_page(["a", "b"], body, TextEncoding.UTF_8, True) == encode_by_cells(
            ["a", "b"], body, TextEncoding.UTF_8, True
        )
