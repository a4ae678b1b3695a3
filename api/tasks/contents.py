"""Long texts: what does not fit into a lane is written to the database before the lane hears of it, and read after."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from api.shared_reads import BatchedLookup
from domain.tasks.messages import REF_CHARACTERS, TEXT_MAX_BYTES, Refs, Task
from infra.database import Database
from stores.tasks import contents

TEXTS_AT_A_TIME = 100

_ESCAPES_MAX = 6
"""Bytes of JSON that a character takes at most."""
Place: TypeAlias = tuple[str, str]
"""A task's id and a reference."""

_json = msgspec.json.Encoder().encode


def is_long(text: str) -> bool:
    """Whether a lane takes only a reference to it."""
    return len(text) * _ESCAPES_MAX + 2 > TEXT_MAX_BYTES and len(_json(text)) > TEXT_MAX_BYTES


def ref_of(text: str) -> str:
    """The reference of a text; the same text has the same."""
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest)[:REF_CHARACTERS].decode()


class Contents:
    """Writes and reads long texts, those of many requests at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = BatchedLookup(self._write, TEXTS_AT_A_TIME)
        self._reads = BatchedLookup(self._read, TEXTS_AT_A_TIME)

    async def put(self, task_id: str, text: str) -> str:
        """The reference of a text, once it is written down."""
        ref = ref_of(text)
        await self._writes.get((task_id, ref, text))
        return ref

    async def texts(self, task_id: str, task: Task) -> tuple[str, str]:
        """Content and log of a task in full."""
        if not task.refs & (Refs.CONTENT | Refs.LOG):
            return task.content, task.log
        content = await self._text(task_id, task.content) if task.refs & Refs.CONTENT else task.content
        log = await self._text(task_id, task.log) if task.refs & Refs.LOG else task.log
        return content, log

    async def _text(self, task_id: str, ref: str) -> str:
        # A task that ended keeps its last texts only; one that was read before that may name another.
        return await self._reads.get((task_id, ref)) or ""

    async def _write(self, texts: Sequence[tuple[str, str, str]]) -> Mapping[tuple[str, str, str], bool]:
        await contents.write(self._database, texts)
        return dict.fromkeys(texts, True)

    async def _read(self, places: Sequence[Place]) -> Mapping[Place, str]:
        return await contents.read(self._database, places)
