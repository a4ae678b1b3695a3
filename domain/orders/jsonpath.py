"""JSONPath, the part that a declared platform needs: names and places, compiled into types that msgspec reads.

Why not a library: those walk a tree of Python objects, in which decimals are floats already, at a tenth of the speed.
Here a path becomes a type, so that only what it leads to is read, and rows stay the bytes that the platform sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*) | \[(?P<place>[0-9]{1,3})\] | \['(?P<quoted>[^'\\]+)'\]""", re.VERBOSE
)

_NULL = msgspec.Raw(b"null")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HIGH, _LOW = rb"u[dD][89abAB][0-9a-fA-F]{2}", rb"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\(?:" + _HIGH + rb"\\" + _LOW + rb"|(?P<half>" + _HIGH + rb"|" + _LOW + rb")|.)", re.DOTALL)

Step = str | int
Pick = Callable[[Any], Any]


class InvalidJsonPath(ValueError):
    """A path that cannot be parsed."""


class UnreadableJson(ValueError):
    """A text that is not JSON, or has another type of value than a path expects.

    Args:
        is_json: Whether the text is JSON of another shape: then the same request will fail again.
    """

    def __init__(self, message: str, *, is_json: bool = True) -> None:
        super().__init__(message)
        self.is_json = is_json


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path from the root of a text to one value."""

    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> JsonPath:
        """Parse `$`, `.name`, `['any name']` and `[3]`; raises InvalidJsonPath for anything else."""
        steps: list[Step] = []
        place = 1
        while text.startswith("$") and place < len(text):
            found = _STEP.match(text, place)
            if not found:
                break
            steps.append(int(found["place"]) if found["place"] else found["name"] or found["quoted"])
            place = found.end()
        if not text.startswith("$") or place < len(text):
            raise InvalidJsonPath(
                f"The path {text!r} is not understood from its character {place} on. "
                "Write $ for the whole answer, then .name, ['any name'] or [0] for each step."
            )
        return cls(tuple(steps))


def replace_lone_surrogates_in_json(text: bytes) -> tuple[bytes, bool]:
    """Remove a byte order mark, and replace each half of a surrogate pair by U+FFFD; return whether there was one.

    Platforms that cut texts by UTF-16 units leave half an emoji at the end, which no database can store as text.
    """
    halves = 0

    def replace_lone_surrogate(escape: re.Match[bytes]) -> bytes:
        nonlocal halves
        halves += escape["half"] is not None
        return rb"\ufffd" if escape["half"] else escape[0]

    repaired = _ESCAPE.sub(replace_lone_surrogate, text.removeprefix(_BYTE_ORDER_MARK))
    return repaired, halves > 0


class JsonReader:
    """Reads the values of several paths from a text in one pass; a missing value is None.

    Args:
        paths: For each name a path and the type of its value; None is always allowed.
    """

    def __init__(self, paths: Mapping[str, tuple[JsonPath, Any]]) -> None:
        tree: dict[Step, Any] = {}
        for name, (path, kind) in paths.items():
            _insert_path(tree, ("$", *path.steps), name, kind)
        compiled = _compile_node(tree["$"]) if paths else _CompiledJsonNode(msgspec.Raw, {})
        self._decoder = msgspec.json.Decoder(compiled.type)
        self._picks = compiled.picks

    def read(self, text: bytes | msgspec.Raw) -> dict[str, Any]:
        """Return the value of each name; raises UnreadableJson."""
        root = self.decode_root(text)
        if root is None:
            return dict.fromkeys(self._picks)
        return {name: pick(root) for name, pick in self._picks.items()}

    def decode_root(self, text: bytes | msgspec.Raw) -> Any:
        """Parse a text into what `pick` functions read from, or None; raises UnreadableJson."""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            is_json = isinstance(error, (msgspec.ValidationError, RecursionError))
            # Each Python has words of its own for it.
            said = "arrays or objects are nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnreadableJson(said, is_json=is_json) from None

    def get_value_reader(self, name: str) -> Pick:
        """Return the function that reads one name's value from a root; for an unknown name it returns None."""
        return self._picks.get(name, _return_none)


@dataclass(frozen=True, slots=True)
class _JsonPathLeaf:
    name: str
    type: Any


@dataclass(frozen=True, slots=True)
class _CompiledJsonNode:
    type: Any
    picks: Mapping[str, Pick]
    """Each takes a value that is present, never None."""


def _insert_path(tree: dict[Step, Any], steps: tuple[Step, ...], name: str, kind: Any) -> None:
    step, *rest = steps
    if not rest:
        if step in tree:
            raise InvalidJsonPath(
                f"Two values are read from one place, or one inside the other: {name}. Give each its own path."
            )
        tree[step] = _JsonPathLeaf(name, kind)
        return
    branch = tree.setdefault(step, {})
    if isinstance(branch, _JsonPathLeaf):
        raise InvalidJsonPath(f"The value {name} lies inside {branch.name}. Give each its own path.")
    _insert_path(branch, tuple(rest), name, kind)


def _compile_node(node: dict[Step, Any] | _JsonPathLeaf) -> _CompiledJsonNode:
    if isinstance(node, _JsonPathLeaf):
        # Raw accepts a null by itself and cannot be part of a union.
        is_raw = node.type is msgspec.Raw
        return _CompiledJsonNode(
            node.type if is_raw else node.type | None, {node.name: _return_none_for_null if is_raw else _return_value}
        )
    kinds = {type(step) for step in node}
    if len(kinds) > 1:
        raise InvalidJsonPath(
            f"{sorted(map(str, node))} are names and places of one value: it is an object or a list, not both."
        )
    return _compile_list(node) if kinds == {int} else _compile_object(node)


def _compile_object(node: dict[Step, Any]) -> _CompiledJsonNode:
    children = [(step, _compile_node(child)) for step, child in node.items()]
    fields = [(f"field_{number}", child.type, None) for number, (_, child) in enumerate(children)]
    names = {f"field_{number}": str(step) for number, (step, _) in enumerate(children)}
    kind = msgspec.defstruct("Node", fields, rename=names, gc=False)
    picks = {
        name: _build_field_reader(f"field_{number}", pick)
        for number, (_, child) in enumerate(children)
        for name, pick in child.picks.items()
    }
    return _CompiledJsonNode(kind | None, picks)


def _compile_list(node: dict[Step, Any]) -> _CompiledJsonNode:
    if len(node) > 1:
        raise InvalidJsonPath("Two places of one list are asked for. Ask for one.")
    [(place, child)] = node.items()
    compiled = _compile_node(child)
    return _CompiledJsonNode(
        list[compiled.type] | None,  # type: ignore[name-defined]
        {name: _build_item_reader(int(place), pick) for name, pick in compiled.picks.items()},
    )


def _return_none(value: Any) -> Any:
    return None


def _return_value(value: Any) -> Any:
    return value


def _return_none_for_null(value: msgspec.Raw) -> Any:
    return None if value == _NULL else value


def _build_field_reader(attribute: str, pick: Pick) -> Pick:
    get = attrgetter(attribute)
    if pick is _return_value:
        # Read from every row: no Python frame.
        return get

    def read_attribute_or_none(node: Any) -> Any:
        value = get(node)
        return None if value is None else pick(value)

    return read_attribute_or_none


def _build_item_reader(place: int, pick: Pick) -> Pick:
    def read_item_or_none(items: Any) -> Any:
        value = items[place] if len(items) > place else None
        return None if value is None else pick(value)

    return read_item_or_none
