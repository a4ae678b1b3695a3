"""Parquet at assembly: the staged frames are read twice, once for the types of the columns and once for the file.

Memory holds one group of rows at a time, whatever the size of the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from domain.downloads.sinks.frames import Frame, frames
from infra.objects import ObjectStore, Stored

if TYPE_CHECKING:
    from domain.downloads.sinks.parquet import Renderer

GROUP_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Rendered:
    """The finished object, and how many rows it has."""

    stored: Stored
    rows: int


async def render(objects: ObjectStore, staged: str, key: str, *, metadata: Mapping[str, str]) -> Rendered:
    """Make the Parquet file under *key* of the frames under *staged*; repeated, it makes the same again."""
    # Workflows import the steps for their signatures, and must not pay for Arrow.
    from domain.downloads.sinks.arrow import PARQUET_TYPE  # noqa: PLC0415
    from domain.downloads.sinks.parquet import Renderer, Survey  # noqa: PLC0415

    survey = Survey(await _head(objects, staged))
    async for pages in _groups(objects, staged):
        await asyncio.to_thread(survey.add, pages)
    content = _content(objects, staged, Renderer(survey))
    stored = await objects.put_stream(key, content, content_type=PARQUET_TYPE, metadata=metadata)
    return Rendered(stored, survey.rows)


async def _content(objects: ObjectStore, staged: str, renderer: Renderer) -> AsyncIterator[bytes]:
    async for pages in _groups(objects, staged):
        yield await asyncio.to_thread(renderer.add, pages)
    yield await asyncio.to_thread(renderer.finish)


async def _head(objects: ObjectStore, staged: str) -> Frame:
    async with aclosing(objects.stream(staged)) as content, aclosing(frames(content)) as pages:
        return await anext(pages)


async def _groups(objects: ObjectStore, staged: str) -> AsyncIterator[list[Frame]]:
    """The pages behind the head, as many at a time as make a group of rows."""
    group, size = list[Frame](), 0
    async with aclosing(objects.stream(staged)) as content, aclosing(frames(content)) as pages:
        await anext(pages)
        async for page in pages:
            group.append(page)
            size += page.plain_bytes
            if size >= GROUP_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group
