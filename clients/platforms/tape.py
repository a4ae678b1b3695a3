"""The answers of a reading in the order they came: one that had to stop hears them again, and goes on where it was.

Pages lead to pages, so what is to be asked next follows from the answers before. A question that was not asked before
is simply asked: what is kept can only spare requests.
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


class Kept(msgspec.Struct, frozen=True):
    """One good answer."""

    question: str
    asked_at: datetime
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def answer(self) -> HttpResponse:
        """As it came."""
        return HttpResponse(200, CIMultiDictProxy(CIMultiDict(self.headers)), self.body)


_DECODER = msgspec.msgpack.Decoder(list[Kept])


class Tape:
    """What one reading has been told so far."""

    def __init__(self, kept: Iterable[Kept] = ()) -> None:
        self._kept = list(kept)
        self._unheard: defaultdict[str, deque[Kept]] = defaultdict(deque)
        for each in self._kept:
            self._unheard[each.question].append(each)
        self.gained = 0
        """Answers that were not there before."""

    @classmethod
    def decoded(cls, body: bytes) -> Self:
        """As it was encoded."""
        return cls(_DECODER.decode(zlib.decompress(body)))

    @property
    def has_begun(self) -> bool:
        """Whether anything was told."""
        return bool(self._kept)

    def encoded(self) -> bytes:
        """Everything told so far."""
        return zlib.compress(msgspec.msgpack.encode(self._kept), _FAST)

    def heard(self, question: str) -> Kept | None:
        """The next answer to a question that was asked before, if there is one left."""
        unheard = self._unheard.get(question)
        return unheard.popleft() if unheard else None

    def keep(self, question: str, asked_at: datetime, answer: HttpResponse) -> None:
        """Note another."""
        headers = tuple((str(name), value) for name, value in answer.headers.items())
        self._kept.append(Kept(question, asked_at, headers, answer.body))
        self.gained += 1


def question(url: str, parameters: Mapping[str, str]) -> str:
    """What is asked, without what shows who asks."""
    return f"{url}?{urlencode(sorted(parameters.items()))}"
