"""Paths into JSON: what they lead to, what is not there, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.orders.jsonpath import InvalidJsonPath, JsonPath, JsonReader, UnreadableJson

TEXT = b'{"a":{"b":[{"c":7},{"c":8}],"d e":"x"},"n":null,"big":9007199254740993}'


def read(text: bytes, path: str, kind: Any) -> Any:
    """One value."""
    return JsonReader({"value": (JsonPath.parse(path), kind)}).read(text)["value"]


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("$.a.b[1].c", int, 8),
        ("$.a['d e']", str, "x"),
        ("$['big']", int | str, 9007199254740993),
        ("$.n", str, None),
        ("$.n.deeper[0].still", str, None),
        ("$.a.missing", str, None),
        ("$.a.b[5].c", int, None),
        ("$.a.b", list[msgspec.Raw], [b'{"c":7}', b'{"c":8}']),
    ],
)
def test_a_path_leads_to_its_value(path: str, kind: Any, value: Any) -> None:
    """None where the way ends early."""
    found = read(TEXT, path, kind)
    assert ([bytes(each) for each in found] if isinstance(found, list) else found) == value


def test_the_root_may_be_a_list() -> None:
    """Some platforms answer rows and nothing else."""
    assert [bytes(each) for each in read(b"[1.10, {}]", "$", list[msgspec.Raw])] == [b"1.10", b"{}"]


def test_several_values_come_from_one_reading() -> None:
    """Whether they are near each other or not."""
    wanted = {"first": "$.a.b[0].c", "text": "$.a['d e']", "big": "$.big"}
    reader = JsonReader({name: (JsonPath.parse(path), int | str) for name, path in wanted.items()})
    assert reader.read(TEXT) == {"first": 7, "text": "x", "big": 9007199254740993}


def test_a_reader_of_nothing_reads_any_json() -> None:
    """A platform may show its errors by the status alone."""
    assert JsonReader({}).read(b'{"error":1}') == {}


@pytest.mark.parametrize("path", ["", "a.b", "$.", "$..a", "$.a[", "$.a[-1]", "$.a[*]", "$['a", "$.a b", "$.a[?(@.b)]"])
def test_what_is_no_path_is_refused_with_a_hint(path: str) -> None:
    """The sentence says how a path is written."""
    with pytest.raises(InvalidJsonPath, match=r"is not understood from its character \d+ on\. Write \$"):
        JsonPath.parse(path)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [("$.a", "$.a", "one place"), ("$.a", "$.a.b", "inside"), ("$.a.b", "$.a", "inside"), ("$[0]", "$.a", "not both")],
)
def test_paths_that_exclude_each_other_are_refused(first: str, second: str, words: str) -> None:
    """At the beginning, not at the first answer."""
    with pytest.raises(InvalidJsonPath, match=words):
        JsonReader({"first": (JsonPath.parse(first), str), "second": (JsonPath.parse(second), str)})


@pytest.mark.parametrize("text", [b"", b"<html>", b'{"a":{"d e":1.5}}', b'{"a":3}', b"[]", b'{"a":{"d e":"\xff"}}'])
def test_another_kind_of_value_is_unreadable(text: bytes) -> None:
    """A float is no id, an object no list."""
    with pytest.raises(UnreadableJson):
        read(text, "$.a['d e']", int | str)


LEAVES = st.none() | st.integers() | st.text() | st.lists(st.integers())


@given(st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=20))
@example({"a": {"b": {"c": {"d": [1, 2]}}}})
def test_reading_agrees_with_walking_the_objects(tree: Any) -> None:
    """The value at $.a.b.c is what json finds there."""
    node = tree
    for name in "abc":
        node = node.get(name) if isinstance(node, dict) else None
    ways = [tree] + ([tree.get("a")] if isinstance(tree, dict) else [])
    ways += [ways[-1].get("b")] if isinstance(ways[-1], dict) else []
    if any(way is not None and not isinstance(way, dict) for way in ways):
        with pytest.raises(UnreadableJson):
            read(json.dumps(tree).encode(), "$.a.b.c", msgspec.Raw)
    else:
        found = read(json.dumps(tree).encode(), "$.a.b.c", msgspec.Raw)
        assert (None if found is None else json.loads(bytes(found))) == node


def test_a_value_that_is_nested_too_deeply_is_unreadable() -> None:
    """In a sentence, as whatever else cannot be read; a platform may send what it likes."""
    with pytest.raises(UnreadableJson, match="nested too deeply") as unreadable:
        read(b'{"a":1,"b":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "$.a", int)
    assert unreadable.value.is_json
