"""What the audit log has of an action whose request ends early."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from api import audit

if TYPE_CHECKING:
    from api.http.routes import Call


async def test_an_action_that_ran_out_of_time_has_the_status_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets 503; the log had 500, as of a defect."""
    written: list[tuple[int, str | None]] = []

    async def add_audit_entry(*_: object) -> int:
        return 1

    async def write_outcome_of_audited_action(_: object, __: int, status: int, code: str | None) -> None:
        written.append((status, code))

    for each in (add_audit_entry, write_outcome_of_audited_action):
        monkeypatch.setattr(f"stores.audit.{each.__name__}", each)
    call = SimpleNamespace(
        services=SimpleNamespace(database=None),
        caller=SimpleNamespace(project_id="prj_1", actor="admin"),
        request=SimpleNamespace(match_info={}, path="/v1/x"),
        route=SimpleNamespace(name="POST /v1/x"),
        request_state=SimpleNamespace(id="req-1"),
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), audit.record_action_before_and_status_after(cast("Call", call), None):
            await asyncio.sleep(60)
    assert written == [(503, "unavailable")]
