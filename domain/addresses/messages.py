"""Change messages: the three topics, how a message is decoded, and the states that it passes through.

docs/reference/addresses.md is the reference for publishers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from domain.addresses.operations import UPRN_MAX

DEPTH_MAX: Final = 100
"""More levels than any address has, and far fewer than JSON parsers allow."""
EVENT_ID_MAX_CHARACTERS: Final = 200
MSG_NO_MAX_CHARACTERS: Final = 32
"""The width of the log's column; Pub/Sub's own ids have at most 20 digits."""

_DIGITS: Final = re.compile(r"[0-9]{1,40}")
_NUL: Final = b"\\u0000"
EXCERPT_CHARACTERS: Final = 60


class Topic(StrEnum):
    """The topics, in the order in which a cycle processes them."""

    SWAP = "swapDeleteInfinityAddress"
    CREATE_UPDATE = "createUpdateInfinityAddress"
    DELETE = "deleteInfinityAddress"


class UnreadableMessage(Exception):
    """A message that cannot be processed, however often it is delivered.

    Args:
        reason: What was received, and what is allowed.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class SwapMessage:
    """Exchange the UPRNs of two addresses."""

    uprn_1: int
    uprn_2: int
    delete_after: bool = False
    """Whether the address that has `uprn_1` after the exchange is deleted as well."""
    event_id: str | None = None
    address_id: None = None


@dataclass(frozen=True, slots=True)
class CreateUpdateMessage:
    """Replace the whole address of a UPRN."""

    uprn_1: int
    address_id: int
    record: dict[str, Any]
    event_id: str | None = None
    uprn_2: None = None


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    """Remove the address of a UPRN."""

    uprn_1: int
    address_id: int | None = None
    event_id: str | None = None
    uprn_2: None = None


ChangeMessage: TypeAlias = SwapMessage | CreateUpdateMessage | DeleteMessage


def decode_message(topic: Topic, raw: bytes) -> ChangeMessage:
    """Decode a message as it was published.

    Raises:
        UnreadableMessage: It is not a JSON object, or does not have the fields of its topic.
    """
    if not raw:
        raise UnreadableMessage("The message is empty. It must be a JSON object.")
    try:
        payload = msgspec.json.decode(raw)
    except RecursionError:
        raise UnreadableMessage(_TOO_DEEP) from None
    except ValueError as error:
        raise UnreadableMessage(
            f"The message is no JSON: {_describe_json_error(raw, error)}. It must be a JSON object in UTF-8."
        ) from None
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and _measure_nesting_depth(payload) > DEPTH_MAX:
        raise UnreadableMessage(_TOO_DEEP)
    if _NUL in raw and _contains_nul_character(payload):
        raise UnreadableMessage(r"The message holds the character \u0000, which no module can keep. Leave it out.")
    return parse_payload(topic, payload)


def _describe_json_error(raw: bytes, error: ValueError) -> str:
    """Say why bytes are not JSON, where the decoder's own message would mislead.

    The decoder counts the position of invalid UTF-8 from the start of a string, and takes half a surrogate pair for the
    end of the input.
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


def parse_payload(topic: Topic, payload: Any) -> ChangeMessage:
    """Read the fields of a decoded message; unknown fields are ignored.

    Raises:
        UnreadableMessage: It does not have the fields of its topic.
    """
    if not isinstance(payload, dict):
        raise UnreadableMessage(f"The message is {_render_truncated_json(payload)}. It must be a JSON object.")
    match topic:
        case Topic.SWAP:
            return _parse_swap(payload)
        case Topic.CREATE_UPDATE:
            return _parse_create_update(payload)
        case Topic.DELETE:
            address_id = None if payload.get("address_id") is None else _parse_positive_integer(payload, "address_id")
            return DeleteMessage(
                _parse_positive_integer(payload, "uprn"), address_id, _parse_event_id_if_present(payload)
            )
        case _:
            assert_never(topic)


def _parse_swap(payload: Mapping[str, Any]) -> SwapMessage:
    uprn_1, uprn_2 = _parse_positive_integer(payload, "uprn_1"), _parse_positive_integer(payload, "uprn_2")
    if uprn_1 == uprn_2:
        raise UnreadableMessage(f"uprn_1 and uprn_2 are both {uprn_1}. A swap names two different addresses.")
    delete_after = payload.get("delete_after", False)
    if not isinstance(delete_after, bool):
        raise UnreadableMessage(f"delete_after is {_render_truncated_json(delete_after)}. It must be true or false.")
    return SwapMessage(uprn_1, uprn_2, delete_after, _parse_event_id_if_present(payload))


def _parse_create_update(payload: Mapping[str, Any]) -> CreateUpdateMessage:
    uprn, address_id = _parse_positive_integer(payload, "uprn"), _parse_positive_integer(payload, "address_id")
    record = payload.get("record")
    if not isinstance(record, dict):
        raise UnreadableMessage(
            f"record is {_describe_value_or_absence(record)}. It must be a JSON object: the whole address."
        )
    return CreateUpdateMessage(uprn, address_id, record, _parse_event_id_if_present(payload))


def _parse_positive_integer(payload: Mapping[str, Any], name: str) -> int:
    """Read a positive 64-bit integer; many publishers write large ones as text."""
    value = payload.get(name)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= UPRN_MAX:
        raise UnreadableMessage(
            f"{name} is {_describe_value_or_absence(value)}. It must be a whole number from 1 to {UPRN_MAX}, "
            "or its digits as text."
        )
    return value


def _parse_event_id_if_present(payload: Mapping[str, Any]) -> str | None:
    value = payload.get("event_id")
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= EVENT_ID_MAX_CHARACTERS:
        raise UnreadableMessage(
            f"event_id is {_render_truncated_json(value)}. "
            f"It must be text of 1 to {EVENT_ID_MAX_CHARACTERS} characters."
        )
    return value


def _describe_value_or_absence(value: Any) -> str:
    return "not there" if value is None else _render_truncated_json(value)


def _render_truncated_json(value: Any) -> str:
    """Return a value as JSON, truncated."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"


def _measure_nesting_depth(payload: Any) -> int:
    level, depth = [payload], 0
    while level:
        depth += 1
        level = [each for outer in level for each in _list_child_values(outer) if isinstance(each, dict | list)]
    return depth


def _contains_nul_character(payload: Any) -> bool:
    waiting = [payload]
    while waiting:
        value = waiting.pop()
        names = value if isinstance(value, dict) else ()
        if any("\0" in text for text in (value, *names) if isinstance(text, str)):
            return True
        waiting.extend(_list_child_values(value))
    return False


def _list_child_values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


class MessageState(StrEnum):
    """The state of a message, as operators filter by it."""

    WAITING = "waiting"
    """No cycle has loaded it yet, or it waits until a module is resumed."""
    PROCESSING = "processing"
    """A cycle is processing it."""
    FAILED = "failed"
    """It failed, and a later cycle will retry it."""
    GIVEN_UP = "given_up"
    """It used up its retries and needs an operator."""
    DONE = "done"
    """All modules have applied it, a later message superseded it, or an operator skipped it."""


def derive_message_state(
    *,
    proc_flag: str | None,
    topic: str,
    is_due: bool,
    retry_times: int,
    retries: int,
    is_only_for_paused_modules: bool = False,
) -> MessageState:
    """Derive the state of a message from the columns of the log.

    Args:
        is_due: Whether a next attempt is scheduled; a swap that a cycle is retrying has none.
        is_only_for_paused_modules: Whether it waits for the pause of a module only.
    """
    match proc_flag:
        case None:
            return MessageState.WAITING
        case "Y":
            return MessageState.DONE
        case "N" if is_due or topic != Topic.SWAP:
            if retry_times >= retries:
                return MessageState.GIVEN_UP
            return MessageState.WAITING if is_only_for_paused_modules else MessageState.FAILED
        case _:
            return MessageState.PROCESSING


EARLIEST_PUBLISHED: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_PUBLISHED: Final = datetime(2200, 1, 1, tzinfo=UTC)


class PublishedMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message as Pub/Sub delivers it."""

    message_id: str = ""
    data: bytes = b""
    publish_time: str = ""

    @property
    def published_at(self) -> datetime | None:
        """Return the time by Pub/Sub's clock, or None if it cannot be parsed or lies outside a plausible range.

        It is information only. PostgreSQL rounds the last microsecond of the year 9999 to one that no driver can read,
        and a list with such a row would fail for ever.
        """
        try:
            moment = datetime.fromisoformat(self.publish_time)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment if EARLIEST_PUBLISHED <= moment <= LATEST_PUBLISHED else None
