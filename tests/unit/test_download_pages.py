"""Pages are read exactly as written; what is wrong with one is said in a sentence."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.pages import NewColumnsFound, PageReader, build_new_column_fault, read_first_page
from domain.faults import SourceFault


def test_cells_keep_their_text() -> None:
    """Numbers of any length and precision stay as they are written; a key that is missing is null."""
    body = b'{"total": 2, "data": [{"a": 123456789012345678901234567890, "b": 1.10}, {"b": -0.0e400}]}'

    page = PageReader(["a", "b"]).read(body)

    assert [[bytes(cell) for cell in row] for row in page.rows] == [
        [b"123456789012345678901234567890", b"1.10"],
        [b"null", b"-0.0e400"],
    ]


@pytest.mark.parametrize("total", ["9", '"9"', "9.0", '"9.00"'])
def test_a_whole_number_is_a_total_however_it_is_written(total: str) -> None:
    """Languages whose only number is a float write 9.0."""
    assert read_first_page(b'{"total": %b, "data": []}' % total.encode()).total == 9


def test_columns_are_the_keys_in_order_of_appearance() -> None:
    """A key that only a later row of the page has comes after those of the first."""
    look = read_first_page(b'{"total": 9, "data": [{"b": 1, "a": 2}, {"a": 1, "c": 2}]}')

    assert (look.total, look.columns, look.rows) == (9, ["b", "a", "c"], 2)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"<html>", "source_not_json", "did not answer JSON"),
        (b"", "source_no_data", "is empty"),
        (b"null", "source_no_data", "answered null"),
        (b"{}", "source_no_data", "has no `data`"),
        (b'{"total": 2, "data": [{"a": 1}, {"a', "source_cut_off", "ends after 35 bytes"),
        (b"\xff\xfe", "source_not_json", "byte 0 of it is not UTF-8"),
        (
            b'{"data": [{"a": "NaN"}, {"b": [{"c": 1}], "a": NaN}]}',
            "source_not_json",
            "NaN is in data[1], under the key “a”",
        ),
        (
            b'{"data": {"data": [{"a": -Infinity}]}}',
            "source_not_json",
            "-Infinity is in data[0], under the key “a”",
        ),
        (b'{"data": [{"a": "]}[", "b": ["c", Infinity]}]}', "source_not_json", "data[0], under the key “b”"),
        (b'{"total": NaN, "data": []}', "source_not_json", "NaN is under the key “total”"),
        (b'{"data": [{"a": Not}]}', "source_not_json", "malformed"),
        (b"[1]", "source_not_object", "not an object: “[1]”"),
        (b'{"total": 1}', "source_no_data", "has no `data`"),
        (b'{"total": 1, "data": null}', "source_no_data", "has no `data`"),
        (
            b'{"status": 500, "msg": "no such report", "data": null}',
            "source_refused",
            "status 500 in its envelope: “no such",
        ),
        (b'{"status": 500, "data": []}', "source_refused", "status 500 in its envelope."),
        (b'{"success": false, "error": "quota"}', "source_refused", "a failure in its envelope: “quota”"),
        (b'{"success": false, "data": []}', "source_refused", "a failure in its envelope."),
        (b'{"code": 101, "message": "too often", "data": []}', "source_refused", "code 101 in its envelope: “too"),
        (b'{"data": []}garbage', "source_not_json", "trailing characters (byte 13)"),
        (b'{"error": "db down", "data": []}', "source_refused", "an error in its envelope: “db down”"),
        (b'{"errors": [{"m": 1}], "data": []}', "source_refused", "an error in its envelope"),
        (b'{"success": "false", "data": []}', "source_refused", "a failure in its envelope."),
        (b'{"ok": 0, "data": []}', "source_refused", "a failure in its envelope."),
        (b'{"status": "fail", "data": []}', "source_refused", "status fail in its envelope."),
        (b'{"errcode": 1, "data": []}', "source_refused", "errcode 1 in its envelope."),
        (b'{"resultCode": "FAIL", "data": []}', "source_refused", "resultCode FAIL in its envelope."),
        (b'{"error": {"id": 7}}', "source_refused", 'an error in its envelope: “{"id":7}”'),
        (b'{"status": 403, "msg": "denied", "data": []}', "source_refused", "status 403 in its envelope: “denied”"),
        (b'{"status": 1, "msg": "x", "data": {"total": 1, "data": []}}', "source_refused", "status 1"),
        (b'{"total": -1, "data": []}', "source_bad_total", "“-1”, not a whole number"),
        (b'{"total": 1.5, "data": []}', "source_bad_total", "“1.5”, not a whole number"),
        (b'{"total": 1, "data": {"a": 1}}', "source_bad_data", "not a list of rows"),
        (b'{"total": 2, "data": [{"a": 1}, 7]}', "source_bad_row", "data[1]"),
        (b'{"total": 1, "data": [[1, 2]]}', "source_bad_row", "data[0]"),
        (b'{"total": 2, "data": [{"b": 1}, 7]}', "source_bad_row", "data[1]"),  # more than its keys is wrong
        (b'{"status": 200, "data": {"total": 2, "data": [{"a": 1}, 7]}}', "source_bad_row", "data[1]"),
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
    look = read_first_page(body)

    page = PageReader(look.columns).read(body)

    assert look.total == page.total == look.rows == len(rows)
    read = [[json.loads(bytes(cell)) for cell in row] for row in page.rows]
    assert read == [[row.get(column) for column in look.columns] for row in rows]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """Bytes that are no page are a fault, never another error."""
    with suppress(SourceFault, NewColumnsFound):
        PageReader(["a"]).read(body)


@pytest.mark.parametrize(
    "around",
    [
        b'"error": null, "errors": [], "code": 0, "msg": "no more data"',
        b'"success": true, "ok": 1, "status": "OK", "resultCode": "SUCCESS"',
        b'"errcode": "0", "errmsg": "ok", "error": "", "status": 200',
        b'"error": 0, "err": "none", "ret": 0, "detail": "page 7 of 6"',
    ],
)
def test_an_end_that_is_no_failure_is_an_end(around: bytes) -> None:
    """Envelopes hold the same fields when all is well."""
    assert read_first_page(b'{"data": [], %b}' % around).rows == 0


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
    with pytest.raises(NewColumnsFound) as caught:
        reader.read(b'{"total": 1, "data": [{"c": 1}, {"d": 1, "e": 2}]}')
    assert (caught.value.names, caught.value.place) == (["d", "e"], "data[1]")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_key_that_no_row_had_before_is_named(wrapped: bool) -> None:
    """All new keys of the page are reported, with the place of the first."""
    body = b'{"total": 2, "data": [{"a": 1}, {"a": 2, "b": 1}, {"c": 1}]}'
    if wrapped:
        body = b'{"status": 200, "msg": "", "data": %b}' % body

    with pytest.raises(NewColumnsFound) as caught:
        PageReader(["a"]).read(body)

    assert (caught.value.names, caught.value.place) == (["b", "c"], "data[1]")
    sentence = build_new_column_fault(caught.value, ["a"], 17).record.sentence
    assert "page 17" in sentence
    assert "`b`, `c`" in sentence
    assert "data[1]" in sentence


@pytest.mark.parametrize(
    ("body", "total"),
    [
        (b'{"status": 200, "msg": "", "data": {"total": 1, "data": [{"a": 1.50}], "header": {}}}', 1),
        (b'{"data": {"data": [{"a": 1.50}]}}', None),
        (b'{"data": [{"a": 1.50}]}', None),
        (b'{"data": [{"a": 1.50}], "total": null}', None),
        (b'{"data": [{"a": 1.50}], "total": "1"}', 1),
        (b'{"data": [{"a": 1.50}], "status": "paid"}', None),  # without a message it is no envelope
    ],
)
def test_variations_of_the_protocol(body: bytes, total: int | None) -> None:
    """A page may be wrapped in an envelope, and may not know its total."""
    page = PageReader(["a"]).read(body)

    assert page.total == total
    assert [[bytes(cell) for cell in row] for row in page.rows] == [[b"1.50"]]
    look = read_first_page(body)
    assert (look.total, look.columns, look.rows) == (total, ["a"], 1)


@pytest.mark.parametrize("data", [b"null", b"{}", b"[]"])
def test_nothing_may_be_written_in_several_ways(data: bytes) -> None:
    """A source without rows may say so as its language does."""
    look = read_first_page(b'{"total": 0, "data": %b}' % data)

    assert (look.total, look.columns, look.rows) == (0, [], 0)


@pytest.mark.parametrize(
    ("region", "words"), [(b'"template": {"width": 1e999}', "Number"), (b'"footer": 1%b' % (b"0" * 5_000), "Integer")]
)
def test_a_template_with_a_number_that_no_program_holds_is_a_fault(region: bytes, words: str) -> None:
    """It cannot be drawn, however often the source is asked for it."""
    with pytest.raises(SourceFault, match=rf"cannot be read: {words}.* out of range"):
        read_first_page(b'{"data": [{"a": 1}], %b}' % region)
