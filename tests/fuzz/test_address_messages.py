"""Change messages against odd input: any published bytes are either read or refused with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.addresses import messages
from domain.addresses.messages import ChangeMessage, Topic, UnreadableMessage
from domain.addresses.operations import UPRN_MAX

EXAMPLES = 500

topics = st.sampled_from(Topic)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, UPRN_MAX, UPRN_MAX + 1, 2**64, 10**400]),
    st.floats(),
    st.text(),
    st.from_regex(r"[0-9]{1,45}", fullmatch=True),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
names = st.sampled_from(["uprn", "uprn_1", "uprn_2", "address_id", "record", "delete_after", "event_id", "other"])
payloads = st.dictionaries(names, values)


def outcome(topic: Topic, raw: bytes) -> ChangeMessage | str:
    """What a message says, or why it says nothing."""
    try:
        return messages.decode_message(topic, raw)
    except UnreadableMessage as error:
        return error.reason


def check(topic: Topic, raw: bytes) -> ChangeMessage | str:
    """Everything that must hold of any message."""
    said = outcome(topic, raw)
    assert outcome(topic, raw) == said
    if isinstance(said, str):
        assert said.endswith((".", "it out."))
        assert len(said) < 500
        return said
    numbers = [said.uprn_1, *(each for each in (said.uprn_2, said.address_id) if each is not None)]
    assert all(type(each) is int and 1 <= each <= UPRN_MAX for each in numbers)
    assert said.uprn_1 != said.uprn_2
    assert said.event_id is None or 1 <= len(said.event_id) <= messages.EVENT_ID_MAX_CHARACTERS
    # What goes into a text column and to other systems: no NUL, and nothing that is no character.
    assert "\0" not in raw.decode()
    assert "\0" not in json.dumps(json.loads(raw), ensure_ascii=False).encode().decode()
    # The row is read back by another reader of JSON, which must find the same.
    assert messages.parse_payload(topic, json.loads(raw)) == said
    return said


@given(topics, st.binary(max_size=200))
@settings(max_examples=EXAMPLES)
def test_any_bytes(topic: Topic, raw: bytes) -> None:
    """Noise."""
    check(topic, raw)


@pytest.mark.long
@given(topics, payloads)
@settings(max_examples=EXAMPLES)
def test_any_json(topic: Topic, payload: dict[str, Any]) -> None:
    """Objects with our fields and odd values, NaN and lone surrogates as Python writes them included."""
    check(topic, json.dumps(payload).encode())


@pytest.mark.long
@given(topics, payloads, st.integers(0, 400), st.binary(min_size=1, max_size=3))
@settings(max_examples=EXAMPLES)
def test_damaged_json(topic: Topic, payload: dict[str, Any], place: int, noise: bytes) -> None:
    """A few bytes replaced by others."""
    raw = json.dumps(payload, ensure_ascii=False).encode(errors="surrogatepass")
    check(topic, raw[:place] + noise + raw[place + len(noise) :])


@given(st.integers(1, UPRN_MAX), st.integers(1, UPRN_MAX), st.dictionaries(st.text(), values), st.booleans())
@settings(max_examples=EXAMPLES)
def test_what_is_right_is_read(uprn: int, other: int, record: dict[str, Any], as_text: bool) -> None:
    """The other way round: nothing that the reference allows is refused, but for what no module can keep."""
    shown: Any = str(uprn) if as_text else uprn
    raw = json.dumps({"uprn": shown, "address_id": other, "record": record}).encode()
    try:
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return
    said = check(Topic.CREATE_UPDATE, raw)
    if isinstance(said, str):
        assert "\\u0000" in said or "out of range" in said
    else:
        assert (said.uprn_1, said.address_id) == (uprn, other)
