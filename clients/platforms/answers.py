"""Answers: their rows stay the bytes that were received, and a log of them saves the next attempt the same requests.

Pages lead to pages, so the next request follows from the answers before. A request that is not in the log is simply
made: the log can only save requests.
"""

from __future__ import annotations

import codecs
import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import Message
from typing import Any, Final, Self
from urllib.parse import urlencode

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from clients.http import HttpResponse
from clients.platforms.failures import InconsistentAnswers
from domain.orders.access import Account
from domain.orders.capability import ID, MODIFIED, MORE, ROWS, TOTAL, VERSION, Capability, PlatformOrder
from domain.orders.jsonpath import JsonReader, UnreadableJson
from infra.memory import CompressedBytes

_TRUE: Final = frozenset({"true", "yes", "y"})
_FALSE: Final = frozenset({"false", "no", "n"})
ORDER_ID_MAX_BYTES: Final = 1_000
"""An index of PostgreSQL holds it together with platform and shop."""
VERSION_LIMIT: Final = 2**63
_LOST: Final = frozenset("\0\ufffd")
"""No database stores the first as text; the second replaces others, so that two ids could become one."""


@dataclass(frozen=True, slots=True)
class OrderPage:
    """One answer: its orders, and its bytes for audit."""

    number: int
    """Position among the pages of one pass, in the order they were read, from 0."""
    orders: Sequence[PlatformOrder]
    body: bytes
    asked_at: datetime
    """When it was requested, by the platform's clock."""
    total: int | None
    """Rows of the window, where the answer has a total."""
    outside: int
    """Orders whose time lies outside of the query: kept, but the platform's filter cannot be trusted."""
    undated: int
    """Orders without a time: kept as the oldest of the query, so that any dated copy replaces them."""
    repeated: int = 0
    """Orders that another page on the way back had listed: rows have moved."""
    is_repeated: bool = False
    """Whether it was read on the way to the last page, too: its rows count once."""
    is_unsorted: bool = False
    """Whether the passes to the last page and back listed orders in different sequences. Set on the last page read."""


@dataclass(frozen=True, slots=True)
class InclusiveQueryTimes:
    """The bounds of a query, both inclusive."""

    first: datetime
    last: datetime


class OrderParser:
    """Parses the answers of one account."""

    def __init__(self, capability: Capability, account: Account) -> None:
        self._capability = capability
        self._account = account
        self.reader = JsonReader(capability.build_page_paths())
        self._row = row = JsonReader(capability.build_row_paths())
        self._id, self._modified, self._version = (
            row.get_value_reader(ID),
            row.get_value_reader(MODIFIED),
            row.get_value_reader(VERSION),
        )
        self._moment = capability.rows.time_format.build_time_parser()

    def parse_page(
        self,
        number: int,
        answer: HttpResponse,
        values: Mapping[str, Any],
        bounds: InclusiveQueryTimes,
        asked_at: datetime,
    ) -> OrderPage:
        """Parse a page; raises InconsistentAnswers where it has no orders."""
        raw = values[ROWS]
        if raw is None:
            if not self._capability.rows.absent_when_empty:
                raise InconsistentAnswers(
                    f"{self._platform_name} answered without a list at {self._capability.rows.list}.",
                    "If it leaves empty lists out, say so in its record (rows.absent_when_empty).",
                )
            raw = []
        read, first, last = self._parse_order_and_whether_dated, bounds.first, bounds.last
        orders, undated = [], 0
        for text in raw:
            order, is_dated = read(text, first, asked_at)
            orders.append(order)
            undated += not is_dated
        outside = sum(not first <= order.modified_at <= last for order in orders)
        return OrderPage(number, orders, answer.body, asked_at, self.parse_total(answer, values), outside, undated)

    def parse_order(self, text: msgspec.Raw, undated_as: datetime, asked_at: datetime) -> PlatformOrder:
        """Parse an order that was requested by its id."""
        return self._parse_order_and_whether_dated(text, undated_as, asked_at)[0]

    def insert_details_into_raw_order(self, part: PlatformOrder, name: str, details: bytes) -> PlatformOrder:
        """Return a listed order with a part of its details; everything else stays the text that was received."""
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        return msgspec.structs.replace(part, raw=msgspec.json.encode({**fields, name: msgspec.Raw(details)}))

    def parse_total(self, answer: HttpResponse, values: Mapping[str, Any]) -> int | None:
        """Return the total of an answer, or None."""
        total = self._capability.total
        text = answer.headers.get(total.header) if total and total.header else values.get(TOTAL)
        return None if text is None else self._parse_count(text)

    def parse_has_more(self, values: Mapping[str, Any]) -> bool | None:
        """Return whether the answer says that more pages follow; None where it does not say."""
        value: bool | int | str | None = values.get(MORE)
        if value is None or isinstance(value, int):
            return None if value is None else value != 0
        word = value.strip().casefold()
        if word.isdecimal():
            return bool(word.strip("0"))
        if word not in _TRUE | _FALSE | {""}:
            raise InconsistentAnswers(
                f"{self._platform_name} answered {value[:100]!r} at {self._capability.paging.more}; true, false or the "
                "number of what is left was expected.",
                "Mend `paging.more` in its record, or leave it out.",
            )
        return word in _TRUE if word else None

    def _parse_count(self, text: int | str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0:
            raise InconsistentAnswers(
                f"{self._platform_name} told a total of {text!r}; a total is a whole number from 0 on.",
                "Mend its record.",
            )
        return number

    def _parse_order_and_whether_dated(
        self, text: msgspec.Raw, undated_as: datetime, asked_at: datetime
    ) -> tuple[PlatformOrder, bool]:
        try:
            root = self._row.decode_root(text)
            if root is None:
                raise UnreadableJson("null")
            modified = self._modified(root)
            is_dated = modified is not None and modified != ""
            moment = self._moment(modified, asked_at) if is_dated else undated_as
        except (UnreadableJson, ValueError, OverflowError) as error:
            raise self._build_unreadable_failure(text, str(error)) from None
        told_id, account = self._id(root), self._account
        if told_id is None or told_id == "":
            raise self._build_unreadable_failure(text, f"there is nothing at {self._capability.rows.id}")
        order_id = str(told_id)
        if not _LOST.isdisjoint(order_id):
            raise self._build_unreadable_failure(text, "its id holds a NUL character or one that was lost")
        if len(order_id.encode()) > ORDER_ID_MAX_BYTES:
            raise self._build_unreadable_failure(text, f"its id is longer than {ORDER_ID_MAX_BYTES:,} bytes")
        version = self._version(root) or 0
        if not -VERSION_LIMIT <= version < VERSION_LIMIT:
            raise self._build_unreadable_failure(text, "its version has more than 64 bits")
        return PlatformOrder(account.platform, account.shop, order_id, moment, version, bytes(text)), is_dated

    def _build_unreadable_failure(self, text: msgspec.Raw, reason: str) -> InconsistentAnswers:
        excerpt = bytes(text)[:300].decode(errors="replace")
        return InconsistentAnswers(
            f"{self._platform_name} told an order that cannot be read ({reason}): {excerpt!r}.", "Mend its record."
        )

    @property
    def _platform_name(self) -> str:
        return f"Platform {self._account.platform} ({self._capability.kind})"


_FAST = 1


class LoggedPlatformAnswer(msgspec.Struct, frozen=True):
    """One answer with status 200."""

    question: str
    asked_at: datetime
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def as_response(self) -> HttpResponse:
        """The answer as it was received."""
        return HttpResponse(200, CIMultiDictProxy(CIMultiDict(self.headers)), self.body)


@dataclass(frozen=True, slots=True)
class _CompressedAnswer:
    question: str
    asked_at: datetime
    headers: tuple[tuple[str, str], ...]
    body: CompressedBytes

    @classmethod
    def compress(cls, answer: LoggedPlatformAnswer) -> Self:
        return cls(answer.question, answer.asked_at, answer.headers, CompressedBytes(answer.body))

    def decompress(self) -> LoggedPlatformAnswer:
        return LoggedPlatformAnswer(self.question, self.asked_at, self.headers, self.body.decompress())


_DECODER = msgspec.msgpack.Decoder(LoggedPlatformAnswer)
_LENGTH: Final = struct.Struct(">I")
_PIECE_BYTES: Final = 64 * 1024


def _iterate_logged_answers(encoded: bytes) -> Iterator[LoggedPlatformAnswer]:
    """Decode answers, one after the other: together they would exist twice."""
    decompressor, rest = zlib.decompressobj(), b""
    for start in range(0, len(encoded), _PIECE_BYTES):
        rest += decompressor.decompress(encoded[start : start + _PIECE_BYTES])
        while len(rest) >= _LENGTH.size and len(rest) >= (end := _LENGTH.size + _LENGTH.unpack_from(rest)[0]):
            yield _DECODER.decode(rest[_LENGTH.size : end])
            rest = rest[end:]
    if rest or not decompressor.eof:
        raise zlib.error("its end is missing")


class ReplayableAnswerLog:
    """The answers that one reading has received, compressed: mostly they are not needed any more."""

    def __init__(self, kept: Iterable[LoggedPlatformAnswer] = ()) -> None:
        self._kept = [_CompressedAnswer.compress(each) for each in kept]
        self._replayable: defaultdict[str, deque[_CompressedAnswer]] = defaultdict(deque)
        for each in self._kept:
            self._replayable[each.question].append(each)
        self.gained = 0
        """Answers added since the log was loaded."""

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Decode a log; raises ValueError where another version of the code has written it in another form."""
        try:
            return cls(_iterate_logged_answers(body))
        except (msgspec.MsgspecError, zlib.error) as error:
            raise ValueError(f"the log of answers cannot be read: {error}") from error

    @property
    def has_logged_answers(self) -> bool:
        """Whether there are any answers."""
        return bool(self._kept)

    def encode(self) -> bytes:
        """Encode all answers, one after the other: together they would exist twice."""
        kept, compressor = list(self._kept), zlib.compressobj(_FAST)
        parts: list[bytes] = []
        for each in kept:
            encoded = msgspec.msgpack.encode(each.decompress())
            parts += (compressor.compress(_LENGTH.pack(len(encoded))), compressor.compress(encoded))
        return b"".join((*parts, compressor.flush()))

    def pop_next_logged_answer(self, request_key: str) -> LoggedPlatformAnswer | None:
        """Return the next logged answer to a request, or None."""
        logged = self._replayable.get(request_key)
        return logged.popleft().decompress() if logged else None

    def add(self, request_key: str, asked_at: datetime, answer: HttpResponse) -> None:
        """Add an answer."""
        headers = tuple((str(name), value) for name, value in answer.headers.items())
        self._kept.append(_CompressedAnswer(request_key, asked_at, headers, CompressedBytes(answer.body)))
        self.gained += 1


def build_request_key(url: str, parameters: Mapping[str, str]) -> str:
    """Identify a request, without its authentication."""
    return f"{url}?{urlencode(sorted(parameters.items()))}"


_CHARSETS: Final = frozenset(
    {"gbk", "gb2312", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp", "euc_kr", "cp949"}
    | {"utf-16", "utf-16-le", "utf-16-be", "iso8859-1", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r"}
)
"""Python has more codecs, some of which are slow, or no charsets of texts."""


def decode_to_utf8_and_tell_if_whole(answer: HttpResponse) -> tuple[bytes, bool]:
    """Return the body as UTF-8, and whether all of it could be decoded.

    A declared charset counts only where the body is not UTF-8: many servers declare a default that they do not follow.
    """
    body = answer.body
    if body.isascii():
        return body, True
    try:
        body.decode()
    except UnicodeDecodeError:
        head = Message()
        head["Content-Type"] = answer.headers.get("Content-Type", "")
        try:
            charset = codecs.lookup(head.get_content_charset("")).name
            if charset in _CHARSETS:
                return body.decode(charset).encode(), True
        except (LookupError, UnicodeError):
            pass
        return body.decode(errors="replace").encode(), False
    return body, True
