"""CSV is exact, and safe to open."""

import csv as reader
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.models import TextEncoding
from domain.downloads.sinks import csv


def parse_csv(data: bytes) -> list[list[str]]:
    return list(reader.reader(io.StringIO(data.decode(), newline="")))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (b"null", b""),
        (b"true", b"true"),
        (b"12.50", b"12.50"),
        (b"-7", b"-7"),  # a number is never guarded
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        ('"上海"'.encode(), '"上海"'.encode()),
        (rb'"\u4e0a"', '"上"'.encode()),
        (rb'"a\"b"', b'"a""b"'),
        (b'"a,b"', b'"a,b"'),
        (rb'"a\nb"', b'"a\nb"'),
        (b'"=1+1"', b'"\'=1+1"'),
        (b'"+1"', b'"\'+1"'),
        (b'"-1"', b'"\'-1"'),
        (b'"@x"', b'"\'@x"'),
        (rb'"\t=1"', b'"\'\t=1"'),
        (rb'"\r=1"', b'"\'\r=1"'),
        (rb'"\n=1"', b'"\'\n=1"'),
        (rb'"\u0000=1"', b'"\'\x00=1"'),
        (rb'"\u003d1"', b'"\'=1"'),  # an escaped sign is a sign
        (b'""', b'""'),
        (b'{"a": "b"}', b'"{""a"": ""b""}"'),
        (rb'{"a": "\n{\"=1"}', rb'"{""a"": ""\n{\""=1""}"'),
        (b'"{x}"', b'"{x}"'),
        (b'"null"', b'"null"'),
        (b'"a,null"', b'"a,null"'),
        (rb'"a\"=b"', b'"a""=b"'),  # a sign after an escaped quote begins nothing
        (rb'"\u001f,\u001f"', b'"\x1f,\x1f"'),
        (b"[1, 2]", b'"[1, 2]"'),
    ],
)
def test_cells(cell: bytes, expected: bytes) -> None:
    """Each kind of JSON value has one form."""
    assert csv.encode_rows([(cell, b"1")]) == expected + b",1\r\n"


def test_nothing_is_no_empty_line() -> None:
    """Readers pass over those: alone in its row, nothing is a text without characters."""
    assert csv.encode_rows([[b"1"], [b"null"], [b'"a"']]) == b'1\r\n""\r\n"a"\r\n'
    assert csv.encode_rows([[b"null", b"null"]]) == b",\r\n"


def test_head_is_guarded_and_marked() -> None:
    """Column heads come after a byte order mark and cannot be formulas either."""
    assert csv.encode_head(["id", "=x", 'a"b']) == b'\xef\xbb\xbf"id","\'=x","a""b"\r\n'
    assert csv.encode_head([]) == b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        (TextEncoding.UTF_8_BOM, '\ufeff"编号"\r\n'.encode()),
        (TextEncoding.UTF_8, '"编号"\r\n'.encode()),
        (TextEncoding.GB18030, b'"\xb1\xe0\xba\xc5"\r\n'),
    ],
)
def test_head_in_each_encoding(encoding: TextEncoding, expected: bytes) -> None:
    """Only one encoding has a byte order mark."""
    assert csv.encode_head(["编号"], encoding) == expected


def test_a_head_is_never_empty() -> None:
    """A source without rows may name no columns, but a file of nothing cannot be uploaded."""
    assert [csv.encode_head([], encoding) for encoding in TextEncoding] == [csv.BOM, b"\r\n", b"\r\n"]


def test_unguarded() -> None:
    """Without the guard texts stay as they are, escaped or not, in heads too."""
    assert csv.encode_head(["=x"], guard=False) == csv.BOM + b'"=x"\r\n'
    assert csv.encode_rows([(b'"=1+1"', rb'"\u003d1"', b'"@x"')], guard=False) == b'"=1+1","=1","@x"\r\n'


def test_gb18030_has_every_character() -> None:
    """All of Unicode, surrogates aside, survives, and the bytes have the form of CSV."""
    everything = "".join(chr(code) for code in range(0x20, 0x110000) if not 0xD800 <= code < 0xE000)
    cell = json.dumps(everything, ensure_ascii=False).encode()

    written = csv.encode_rows([(cell, b"1")], TextEncoding.GB18030)

    assert written.decode("gb18030") == csv.encode_rows([(cell, b"1")]).decode()
    assert written.count(b'"') == 4  # its own, doubled, and the two around
    assert written.count(b"\r\n") == written.count(b"\n") == 1


def test_gbk_programs_read_what_gbk_has() -> None:
    """A program that takes the file for GBK shows other characters wrong, and none beside them."""
    cell = '"金额€=😀,中"'.encode()

    shown = csv.encode_rows([(cell,)], TextEncoding.GB18030).decode("gbk", errors="replace")

    assert shown.startswith('"金额')
    assert shown.endswith(',中"\r\n')


def test_content_types_name_the_encoding() -> None:
    """The content type names the encoding."""
    assert (
        csv.get_content_type(TextEncoding.UTF_8)
        == csv.get_content_type(TextEncoding.UTF_8_BOM)
        == "text/csv; charset=utf-8"
    )
    assert csv.get_content_type(TextEncoding.GB18030) == "text/csv; charset=gb18030"


nested = st.lists(st.integers() | st.text('ab"\\=,[{\x1f'), max_size=2) | st.dictionaries(
    st.text('x"=', max_size=2), st.none()
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.text('=+-@"\\\x1f,\r\n\t{[nul')
    | nested
)


@given(st.lists(st.lists(scalars, min_size=2, max_size=2), min_size=1, max_size=5), st.booleans())
def test_any_cells_come_back(rows: list[list[Any]], escape: bool) -> None:
    """A CSV reader reads what was written, up to the guard's apostrophe, however the JSON was escaped."""
    cells = [tuple(json.dumps(value, ensure_ascii=escape).encode() for value in row) for row in rows]

    read = parse_csv(csv.encode_rows(cells))

    assert read == [[as_text(value, escape) for value in row] for row in rows]


def as_text(value: object, escape: bool) -> str:
    match value:
        case None:
            return ""
        case str():
            return f"'{value}" if value[:1] and value[0] in "=+-@\t\r\n\0" else value
        case _:
            return json.dumps(value, ensure_ascii=escape)
