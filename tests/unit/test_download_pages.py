"""Pages are read exactly as written; what is wrong with one is said in a sentence."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.pages import PageReader, columns_of
from domain.faults import SourceFault


def test_cells_keep_their_text() -> None:
    """Numbers of any length and precision stay as they are written; a key that is missing is null."""
    body = b'{"total": 2, "data": [{"a": 123456789012345678901234567890, "b": 1.10}, {"b": -0.0e400}]}'

    page = PageReader(["a", "b"]).read(body)

    assert [[bytes(cell) for cell in row] for row in page.rows] == [
        [b"123456789012345678901234567890", b"1.10"],
        [b"null", b"-0.0e400"],
    ]


def test_columns_are_the_keys_in_order_of_appearance() -> None:
    """A key that only a later row of the page has comes after those of the first."""
    assert columns_of(b'{"total": 9, "data": [{"b": 1, "a": 2}, {"a": 1, "c": 2}]}') == (9, ["b", "a", "c"])


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"<html>", "source_not_json", "did not answer JSON"),
        (b"", "source_not_json", "did not answer JSON"),
        (b"\xff\xfe", "source_not_json", "did not answer JSON"),
        (b"[1]", "source_not_object", "not an object: “[1]”"),
        (b'{"total": 1}', "source_no_data", "has no `data`"),
        (b'{"data": []}', "source_no_total", "has no `total`"),
        (b'{"total": -1, "data": []}', "source_bad_total", "“-1”, not a whole number"),
        (b'{"total": 1.5, "data": []}', "source_bad_total", "“1.5”, not a whole number"),
        (b'{"total": null, "data": []}', "source_bad_total", "“null”, not a whole number"),
        (b'{"total": 1, "data": {"a": 1}}', "source_bad_data", "not a list of rows"),
        (b'{"total": 1, "data": null}', "source_bad_data", "not a list of rows"),
        (b'{"total": 2, "data": [{"a": 1}, 7]}', "source_bad_row", "data[1]"),
        (b'{"total": 1, "data": [[1, 2]]}', "source_bad_row", "data[0]"),
        (b'{"total": 2, "data": [{"a": 1}, {"b": 1}]}', "source_new_column", "key `b` appears at data[1]"),
    ],
)
def test_wrong_pages_are_named(body: bytes, code: str, words: str) -> None:
    """Each way to be wrong has its own code, and its sentence points at the place."""
    with pytest.raises(SourceFault) as caught:
        PageReader(["a"]).read(body)

    assert caught.value.record.code == code
    assert words in caught.value.record.message
    assert caught.value.record.hint


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5))
def test_any_json_rows_come_back(rows: list[dict[str, Any]]) -> None:
    """What json writes is what the reader holds, whatever keys and values."""
    body = json.dumps({"total": len(rows), "data": rows}).encode()
    total, columns = columns_of(body)

    page = PageReader(columns).read(body)

    assert total == page.total == len(rows)
    read = [[json.loads(bytes(cell)) for cell in row] for row in page.rows]
    assert read == [[row.get(column) for column in columns] for row in rows]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """Bytes that are no page are a fault, never another error."""
    with suppress(SourceFault):
        PageReader(["a"]).read(body)


def test_half_a_surrogate_pair_is_replaced() -> None:
    """Text that was cut in the middle of a pair is kept up to there; whole pairs and escaped backslashes stay."""
    body = rb'{"total": 1, "data": [{"a": "x\ud83d", "b": "\ud83d\ude00", "c": "\\ud83d"}]}'

    (row,) = PageReader(["a", "b", "c"]).read(body).rows

    assert [json.loads(bytes(cell)) for cell in row] == ["x\ufffd", "😀", "\\ud83d"]


def test_bytes_that_are_no_utf8_are_refused() -> None:
    """A cell is passed on as it is, so the page must be text."""
    with pytest.raises(SourceFault, match="did not answer JSON"):
        PageReader(["a"]).read(b'{"total": 1, "data": [{"a": "\xff"}]}')


def test_a_key_that_can_name_no_field_is_read_all_the_same() -> None:
    """Quotes and control characters are allowed in keys; an unknown key is named on this way too."""
    reader = PageReader(['a"b', "c"])

    assert [bytes(cell) for cell in reader.read(b'{"total": 1, "data": [{"a\\"b": 1}]}').rows[0]] == [b"1", b"null"]
    with pytest.raises(SourceFault, match="key `d` appears at data"):
        reader.read(b'{"total": 1, "data": [{"d": 1}]}')
