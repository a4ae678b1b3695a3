"""What change messages say: the JSON of each topic, and a sentence for what is none of it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.addresses import messages
from domain.addresses.messages import (
    ChangeMessage,
    CreateUpdateMessage,
    DeleteMessage,
    SwapMessage,
    Topic,
    UnreadableMessage,
)
from domain.addresses.operations import UPRN_MAX, Module, Operation
from stores.addresses import delivery

RECORD = {"street": "Main Street", "number": 7}
TOO_LARGE = UPRN_MAX + 1


@pytest.mark.parametrize(
    ("topic", "payload", "said"),
    [
        (Topic.SWAP, {"uprn_1": 1, "uprn_2": 2}, SwapMessage(1, 2)),
        (Topic.SWAP, {"uprn_1": 1, "uprn_2": 2, "delete_after": True, "event_id": "e"}, SwapMessage(1, 2, True, "e")),
        (Topic.SWAP, {"uprn_1": "000000000123", "uprn_2": str(UPRN_MAX)}, SwapMessage(123, UPRN_MAX)),
        (Topic.CREATE_UPDATE, {"uprn": 1, "address_id": "9", "record": RECORD}, CreateUpdateMessage(1, 9, RECORD)),
        (Topic.CREATE_UPDATE, {"uprn": 1, "address_id": 9, "record": {}, "new": [1]}, CreateUpdateMessage(1, 9, {})),
        (Topic.DELETE, {"uprn": 1}, DeleteMessage(1)),
        (Topic.DELETE, {"uprn": 1, "address_id": None, "event_id": None}, DeleteMessage(1)),
        (Topic.DELETE, {"uprn": 1, "address_id": 9}, DeleteMessage(1, 9)),
    ],
)
def test_each_topic_has_its_fields(topic: Topic, payload: dict[str, Any], said: ChangeMessage) -> None:
    """Large numbers may come as text, and what is not known here is no hindrance."""
    assert messages.decode_message(topic, json.dumps(payload).encode()) == said


@pytest.mark.parametrize(
    ("topic", "raw", "reason"),
    [
        (Topic.DELETE, b"", "The message is empty"),
        (Topic.DELETE, b"{", "The message is no JSON"),
        (Topic.DELETE, b'{"uprn": 1}x', "trailing characters"),
        (Topic.DELETE, b'{"uprn": "\xff"}', "The message is no JSON: byte 10, 0xff, is no UTF-8"),
        (Topic.DELETE, b'\xef\xbb\xbf{"uprn": 1}', "no JSON: it begins with a byte order mark"),
        (Topic.DELETE, b'{"uprn": 1, "x": "\\ud800"}', r"no JSON: a \\u escape is half of a surrogate pair"),
        (Topic.DELETE, b'{"uprn": 1, "x": "\\ude00"}', r"no JSON: a \\u escape is half of a surrogate pair"),
        (Topic.DELETE, b'{"uprn": 1, "x": "\\ud83d\\ude00', "no JSON: Input data was truncated"),
        (Topic.DELETE, b'{"uprn": 1, "x": NaN}', "The message is no JSON"),
        (Topic.DELETE, b'{"uprn": 1, "x": 1e999}', "The message is no JSON"),
        (Topic.DELETE, b'{"uprn": 1, "x": "\\u0000"}', r"holds the character \\u0000"),
        (Topic.DELETE, b'{"uprn": 1, "\\u0000": [1]}', r"holds the character \\u0000"),
        (Topic.DELETE, b"[1]", r"The message is \[1\]. It must be a JSON object"),
        (Topic.DELETE, b"null", "The message is null"),
        (Topic.DELETE, b"{}", "uprn is not there. It must be a whole number from 1 to"),
        (Topic.DELETE, b'{"uprn": 0}', "uprn is 0"),
        (Topic.DELETE, b'{"uprn": -1}', "uprn is -1"),
        (Topic.DELETE, b'{"uprn": 1.0}', r"uprn is 1\.0"),
        (Topic.DELETE, b'{"uprn": true}', "uprn is true"),
        (Topic.DELETE, b'{"uprn": "1 "}', 'uprn is "1 "'),
        (Topic.DELETE, '{"uprn": "١"}'.encode(), "uprn is"),
        (Topic.DELETE, f'{{"uprn": {TOO_LARGE}}}'.encode(), f"uprn is {TOO_LARGE}"),
        (Topic.DELETE, f'{{"uprn": "{TOO_LARGE}"}}'.encode(), f"uprn is {TOO_LARGE}"),
        (Topic.DELETE, b'{"uprn": "' + b"1" * 500 + b'"}', 'uprn is "1+…'),
        (Topic.DELETE, b'{"uprn": 1, "address_id": "x"}', 'address_id is "x"'),
        (Topic.DELETE, b'{"uprn": 1, "event_id": 5}', "event_id is 5. It must be text of 1 to 200 characters"),
        (Topic.DELETE, b'{"uprn": 1, "event_id": ""}', "event_id is"),
        (Topic.SWAP, b'{"uprn_1": 1}', "uprn_2 is not there"),
        (Topic.SWAP, b'{"uprn_1": 1, "uprn_2": "01"}', "are both 1. A swap names two different addresses"),
        (Topic.SWAP, b'{"uprn_1": 1, "uprn_2": 2, "delete_after": 1}', "delete_after is 1. It must be true or false"),
        (Topic.CREATE_UPDATE, b'{"uprn": 1, "record": {}}', "address_id is not there"),
        (Topic.CREATE_UPDATE, b'{"uprn": 1, "address_id": 2}', "record is not there"),
        (Topic.CREATE_UPDATE, b'{"uprn": 1, "address_id": 2, "record": []}', r"record is \[\]. It must be a JSON"),
    ],
)
def test_what_nobody_can_act_on_is_told_by_a_sentence(topic: Topic, raw: bytes, reason: str) -> None:
    """The sentence has what was received and what is allowed, and never the whole of a large message."""
    with pytest.raises(UnreadableMessage, match=reason) as caught:
        messages.decode_message(topic, raw)

    assert len(caught.value.reason) < 300


@pytest.mark.parametrize("depth", [messages.DEPTH_MAX + 1, 5_000, 200_000])
def test_what_is_nested_too_deep_is_unreadable(depth: int) -> None:
    """Long before a reader of JSON, ours or a module's, would give up."""
    raw = b'{"uprn": 1, "x": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    with pytest.raises(UnreadableMessage, match=r"nested too deep\. At most 100 levels"):
        messages.decode_message(Topic.DELETE, raw)


def test_the_deepest_message_allowed_is_read() -> None:
    """The limit itself is allowed, and so are many brackets side by side."""
    inner = b"[" * (messages.DEPTH_MAX - 1) + b"]" * (messages.DEPTH_MAX - 1)

    assert messages.decode_message(Topic.DELETE, b'{"uprn": 1, "x": ' + inner + b"}") == DeleteMessage(1)
    assert messages.decode_message(Topic.DELETE, b'{"uprn": 1, "x": [' + b"[]," * 500 + b"[]]}") == DeleteMessage(1)


def test_a_backslash_before_u0000_is_no_nul() -> None:
    """Only the character itself is refused, not text that looks like its escape."""
    assert messages.decode_message(Topic.DELETE, rb'{"uprn": 1, "x": "\\u0000"}') == DeleteMessage(1)


_NAMES = st.sampled_from(["a", "b:", 'c":', "\u00e9", "record", "delete_after"])
_SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.sampled_from([0.1, "x: y", '":', "\u00e9"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.lists(st.tuples(_NAMES, inner), max_size=3), max_leaves=4
)
_OBJECTS = st.lists(st.tuples(_NAMES, _VALUES), max_size=3)


def _write_json(value: Any, style: random.Random) -> str:
    """Write JSON as publishers may: names twice, space wherever it is allowed, needless escapes."""

    def space() -> str:
        return style.choice(["", "", " ", "\n"])

    match value:
        case list() if value and all(isinstance(each, tuple) for each in value):
            pairs = [f"{_write_json(n, style)}{space()}:{space()}{_write_json(each, style)}" for n, each in value]
            return f"{{{space()}{','.join(pairs)}}}"
        case list():
            return f"[{','.join(_write_json(each, style) for each in value)}]"
        case str() if style.random() < 0.2:
            return '"' + "".join(f"\\u{ord(each):04x}" for each in value) + '"'
        case _:
            return json.dumps(value, ensure_ascii=style.random() < 0.5)


@given(st.sampled_from([Topic.CREATE_UPDATE, Topic.SWAP]), _OBJECTS, _OBJECTS, st.booleans(), st.integers(0, 999))
def test_a_module_gets_what_intake_has_read(
    topic: Topic, fields: list[tuple[str, Any]], record: list[tuple[str, Any]], delete_after: bool, seed: int
) -> None:
    """No name is sent twice, and fields that a topic does not have mean nothing."""
    if topic is Topic.CREATE_UPDATE:
        fields = [*fields, ("uprn", 1), ("address_id", 9), ("record", [("z", 1), *record])]
    else:
        fields = [*fields, ("uprn_1", 1), ("uprn_2", 2), ("delete_after", delete_after)]
    raw = _write_json(fields, random.Random(seed)).encode()
    content = messages.decode_message(topic, raw)

    sent = json.loads(_build_operation(topic, content, raw).json_bytes, object_pairs_hook=_refuse_repeated_names)

    if isinstance(content, CreateUpdateMessage):
        assert sent == {
            "op_id": "5", "seq": 5, "kind": "upsert", "uprn": 1, "address_id": 9, "record": content.record
        }  # fmt: skip
    else:
        assert isinstance(content, SwapMessage)
        expected = {"op_id": "5", "seq": 5, "kind": "swap", "uprn": 1, "uprn_2": 2}
        assert sent == {**expected, "delete_after": content.delete_after}


def _build_operation(topic: Topic, content: ChangeMessage, raw: bytes) -> Operation:
    columns = {"uprn_1": content.uprn_1, "uprn_2": content.uprn_2, "address_id": content.address_id}
    acks = {f"{module}_ack": None for module in Module}
    row = {"id": 5, "topic": topic.value, "payload": raw.decode(), "wait_reason": None} | columns | acks
    return delivery.build_logged_message(row).operation  # type: ignore[arg-type]


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)
