"""Entries of an archive are packed in pieces that are made apart, and are one as if they had been packed at once."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel import archive
from excel.archive import (
    CheckedDeflatedPiece,
    SplicedTableBody,
    SpooledPieces,
    ZipArchive,
    deflate,
    insert_bodies_into_sheet,
)

PIECES = st.lists(st.binary(max_size=300), max_size=5)
SHEET = b'<worksheet><dimension ref="%b"/><sheetData>%b</sheetData><mergeCells/></worksheet>'


def fill_spool(*contents: bytes) -> SpooledPieces:
    """Pieces, joined."""
    spool = SpooledPieces()
    for content in contents:
        spool.add(deflate(content))
    return spool


def read_entry(parts: list[CheckedDeflatedPiece | SpooledPieces]) -> bytes:
    """What an entry of these parts says, check sum and sizes proved by a reader."""
    out = io.BytesIO()
    book = ZipArchive(out.write)
    book.write_entry("a.xml", parts)
    assert book.write_directory_and_get_file_size() == len(out.getvalue())
    with zipfile.ZipFile(out) as found:
        return found.read("a.xml")


@given(PIECES, PIECES, st.binary(max_size=300))
def test_pieces_and_spools_are_one_entry(before: list[bytes], within: list[bytes], last: bytes) -> None:
    """Empty ones, too."""
    parts: list[CheckedDeflatedPiece | SpooledPieces] = [
        *map(deflate, before),
        fill_spool(*within),
        deflate(last, last=True),
    ]
    assert read_entry(parts) == b"".join([*before, *within, last])


@given(PIECES)
def test_a_piece_may_be_of_several_contents(contents: list[bytes]) -> None:
    """They are packed as one."""
    assert read_entry([deflate(*contents), deflate(last=True)]) == b"".join(contents)


def test_much_is_kept_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """And comes back as it was."""
    monkeypatch.setattr(archive, "_SPOOLED_BYTES", 10)
    contents = [bytes([place]) * 100 for place in range(20)]
    assert read_entry([fill_spool(*contents), deflate(last=True)]) == b"".join(contents)


@pytest.mark.parametrize("length", [2**32, 2**33])
def test_no_entry_needs_zip64(length: int) -> None:
    """One that would is refused before a byte of it is written."""
    out = io.BytesIO()
    book = ZipArchive(out.write)
    with pytest.raises(OverflowError, match="without Zip64"):
        book.write_entry("a.xml", [CheckedDeflatedPiece(b"", 0, length)])
    assert out.getvalue() == b""


@pytest.mark.parametrize(
    ("drawn", "dimension", "expected"),
    [
        (b"", b"A1", b"ab"),
        (b'<row r="1"/>', b"A1", b'<row r="1"/>ab'),
        (b'<row r="1"/><row r="5"/>', b"A1:C5", b'<row r="1"/>a<row r="5"/>b'),
        (b'<row r="7"/>', b"B7", b'ab<row r="7"/>'),
    ],
)
def test_bodies_stand_between_the_rows_that_are_drawn(drawn: bytes, dimension: bytes, expected: bytes) -> None:
    """Each before the first drawn row below it; the sheet says how large it has become."""
    insets = [SplicedTableBody(1, 3, 2, fill_spool(b"a")), SplicedTableBody(5, 1, 0, fill_spool(b"b"))]
    sheet = SHEET % (dimension, drawn)
    found = read_entry(insert_bodies_into_sheet(sheet.replace(b"<sheetData></sheetData>", b"<sheetData/>"), insets))
    size = b"A1:C7" if b"7" in dimension else b"A1:C6"
    assert found == SHEET % (size, expected)


def test_a_body_without_rows_makes_the_sheet_no_larger() -> None:
    """Its heads do."""
    found = read_entry(
        insert_bodies_into_sheet(SHEET % (b"A1:B2", b'<row r="2"/>'), [SplicedTableBody(2, 0, 9, fill_spool())])
    )
    assert found == SHEET % (b"A1:B2", b'<row r="2"/>')
