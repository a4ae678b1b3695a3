"""Change messages: the three topics, and what the JSON of each says. docs/reference/addresses.md tells publishers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from domain.addresses.operations import UPRN_MAX

DEPTH_MAX: Final = 100
"""Deeper than any address, and far from where readers of JSON give up."""
EVENT_ID_MAX_CHARACTERS: Final = 200
MSG_NO_MAX_CHARACTERS: Final = 32
"""As the log's column is wide; Pub/Sub's own ids have 20 digits at most."""

_DIGITS: Final = re.compile(r"[0-9]{1,40}")
_NUL: Final = b"\\u0000"
_SHOWN_CHARACTERS: Final = 60


class Topic(StrEnum):
    """What messages are about, in the order in which a cycle takes them."""

    SWAP = "swapDeleteInfinityAddress"
    CREATE_UPDATE = "createUpdateInfinityAddress"
    DELETE = "deleteInfinityAddress"


class Unreadable(Exception):
    """A message that nobody can act on, however often it is delivered.

    Args:
        reason: What was received, and what is allowed.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Swap:
    """Two addresses exchange their UPRNs."""

    uprn_1: int
    uprn_2: int
    delete_after: bool = False
    """Whether the address that then has `uprn_1` is deleted, too."""
    event_id: str | None = None
    address_id: None = None


@dataclass(frozen=True, slots=True)
class CreateUpdate:
    """An address as it is from now on, whole."""

    uprn_1: int
    address_id: int
    record: dict[str, Any]
    event_id: str | None = None
    uprn_2: None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """An address is no more."""

    uprn_1: int
    address_id: int | None = None
    event_id: str | None = None
    uprn_2: None = None


Message: TypeAlias = Swap | CreateUpdate | Delete


def read(topic: Topic, raw: bytes) -> Message:
    """What a message says, as it was published.

    Raises:
        Unreadable: It is no JSON object, or not what the topic is about.
    """
    if not raw:
        raise Unreadable("The message is empty. It must be a JSON object.")
    try:
        payload = msgspec.json.decode(raw)
    except RecursionError:
        raise Unreadable(_TOO_DEEP) from None
    except ValueError as error:
        raise Unreadable(
            f"The message is no JSON: {_malformation(raw, error)}. It must be a JSON object in UTF-8."
        ) from None
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and _depth(payload) > DEPTH_MAX:
        raise Unreadable(_TOO_DEEP)
    if _NUL in raw and _holds_nul(payload):
        raise Unreadable(r"The message holds the character \u0000, which no module can keep. Leave it out.")
    return parse(topic, payload)


def _malformation(raw: bytes, error: ValueError) -> str:
    """Say what keeps bytes from being JSON, where the decoder's own sentence would mislead.

    It counts the place of what is no UTF-8 from the beginning of a string, and takes half a surrogate pair for the end.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as undecodable:
        return f"byte {undecodable.start}, 0x{raw[undecodable.start]:02x}, is no UTF-8"
    if text.startswith("\ufeff"):
        return "it begins with a byte order mark, leave that out"
    if _LONE_SURROGATE.search(text):
        return "a \\u escape is half of a surrogate pair"
    return str(error)


_LONE_SURROGATE: Final = re.compile(
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"""
)
_TOO_DEEP: Final = f"The message is nested too deep. At most {DEPTH_MAX} levels are allowed."


def parse(topic: Topic, payload: Any) -> Message:
    """What a decoded message says; fields that are not known here are left to the modules.

    Raises:
        Unreadable: It is not what the topic is about.
    """
    if not isinstance(payload, dict):
        raise Unreadable(f"The message is {_shown(payload)}. It must be a JSON object.")
    match topic:
        case Topic.SWAP:
            return _swap(payload)
        case Topic.CREATE_UPDATE:
            return _create_update(payload)
        case Topic.DELETE:
            address_id = None if payload.get("address_id") is None else _number(payload, "address_id")
            return Delete(_number(payload, "uprn"), address_id, _event_id(payload))
        case _:
            assert_never(topic)


def _swap(payload: Mapping[str, Any]) -> Swap:
    uprn_1, uprn_2 = _number(payload, "uprn_1"), _number(payload, "uprn_2")
    if uprn_1 == uprn_2:
        raise Unreadable(f"uprn_1 and uprn_2 are both {uprn_1}. A swap names two different addresses.")
    delete_after = payload.get("delete_after", False)
    if not isinstance(delete_after, bool):
        raise Unreadable(f"delete_after is {_shown(delete_after)}. It must be true or false.")
    return Swap(uprn_1, uprn_2, delete_after, _event_id(payload))


def _create_update(payload: Mapping[str, Any]) -> CreateUpdate:
    uprn, address_id = _number(payload, "uprn"), _number(payload, "address_id")
    record = payload.get("record")
    if not isinstance(record, dict):
        raise Unreadable(f"record is {_missing_or(record)}. It must be a JSON object: the whole address.")
    return CreateUpdate(uprn, address_id, record, _event_id(payload))


def _number(payload: Mapping[str, Any], name: str) -> int:
    """A positive 64-bit integer; many publishers write large ones as text."""
    value = payload.get(name)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= UPRN_MAX:
        raise Unreadable(
            f"{name} is {_missing_or(value)}. It must be a whole number from 1 to {UPRN_MAX}, or its digits as text."
        )
    return value


def _event_id(payload: Mapping[str, Any]) -> str | None:
    value = payload.get("event_id")
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= EVENT_ID_MAX_CHARACTERS:
        raise Unreadable(f"event_id is {_shown(value)}. It must be text of 1 to {EVENT_ID_MAX_CHARACTERS} characters.")
    return value


def _missing_or(value: Any) -> str:
    return "not there" if value is None else _shown(value)


def _shown(value: Any) -> str:
    """A value as JSON writes it, cut short."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _depth(payload: Any) -> int:
    level, depth = [payload], 0
    while level:
        depth += 1
        level = [each for outer in level for each in _inside(outer) if isinstance(each, dict | list)]
    return depth


def _holds_nul(payload: Any) -> bool:
    waiting = [payload]
    while waiting:
        value = waiting.pop()
        names = value if isinstance(value, dict) else ()
        if any("\0" in text for text in (value, *names) if isinstance(text, str)):
            return True
        waiting.extend(_inside(value))
    return False


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
