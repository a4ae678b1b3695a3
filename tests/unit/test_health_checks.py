"""Checks of components by many callers at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from infra import outages
from services import services
from services.services import Services


def build_services(check_database: Any) -> Services:
    """Services with nothing but a database to be checked."""
    names = ("settings", "http", "sealer", "gate", "engine", "gse", "modules", "files")
    others: dict[str, Any] = dict.fromkeys(names)
    part: Any = SimpleNamespace(check_health=check_database)
    return Services(database=part, objects=part, **others)


async def test_callers_share_a_check() -> None:
    """A hundred requests that are late at once use one connection, not a hundred."""
    begun: list[int] = []

    async def check() -> None:
        begun.append(len(begun))
        await asyncio.sleep(0.01)

    held = build_services(check)
    found = await asyncio.gather(*(held.check_component_and_note_down_since("database") for _ in range(100)))

    assert (set(found), len(begun)) == ({None}, 1)
    await held.check_component_and_note_down_since("database")
    assert len(begun) == 2


async def test_a_check_that_hangs_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller learns after its own time that there is no answer; no second check begins beside the first."""
    monkeypatch.setattr(services, "PING_TIMEOUT_SECONDS", 0.02)
    begun: list[int] = []
    released = asyncio.Event()

    async def check() -> None:
        begun.append(len(begun))
        try:
            await released.wait()
        finally:
            await released.wait()

    held = build_services(check)
    found = [await held.check_component_and_note_down_since("database") for _ in range(3)]
    released.set()

    assert (found, len(begun)) == ([outages.NO_ANSWER] * 3, 1)
