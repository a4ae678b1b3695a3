"""A log of the answers to one reading: an attempt that continues it replays them, and requests only what follows.

Pages lead to pages, so the next request follows from the answers before. A request that is not in the log is simply
made: the log can only save requests.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Self
from urllib.parse import urlencode

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from clients.http import HttpResponse

_FAST = 1


class LoggedAnswer(msgspec.Struct, frozen=True):
    """One answer with status 200."""

    question: str
    asked_at: datetime
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def answer(self) -> HttpResponse:
        """The answer as it was received."""
        return HttpResponse(200, CIMultiDictProxy(CIMultiDict(self.headers)), self.body)


_DECODER = msgspec.msgpack.Decoder(list[LoggedAnswer])


class AnswerLog:
    """The answers that one reading has received."""

    def __init__(self, kept: Iterable[LoggedAnswer] = ()) -> None:
        self._kept = list(kept)
        self._replayable: defaultdict[str, deque[LoggedAnswer]] = defaultdict(deque)
        for each in self._kept:
            self._replayable[each.question].append(each)
        self.gained = 0
        """Answers added since the log was loaded."""

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Decode a log."""
        return cls(_DECODER.decode(zlib.decompress(body)))

    @property
    def has_begun(self) -> bool:
        """Whether there are any answers."""
        return bool(self._kept)

    def encode(self) -> bytes:
        """Encode all answers."""
        return zlib.compress(msgspec.msgpack.encode(self._kept), _FAST)

    def replay(self, question: str) -> LoggedAnswer | None:
        """Return the next logged answer to a request, or None."""
        logged = self._replayable.get(question)
        return logged.popleft() if logged else None

    def add(self, question: str, asked_at: datetime, answer: HttpResponse) -> None:
        """Add an answer."""
        headers = tuple((str(name), value) for name, value in answer.headers.items())
        self._kept.append(LoggedAnswer(question, asked_at, headers, answer.body))
        self.gained += 1


def build_request_key(url: str, parameters: Mapping[str, str]) -> str:
    """Identify a request, without its authentication."""
    return f"{url}?{urlencode(sorted(parameters.items()))}"
