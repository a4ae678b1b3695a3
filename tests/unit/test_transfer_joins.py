"""Joining the jobs of a file from an API process: which windows a batch tries."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.transfers.joins import JobJoiner
from domain.transfers import names
from domain.transfers.joining import JoinBatch, JoinResult, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from infra.settings import Settings
from services.services import Services
from workflows.transfers import handle

WINDOW_SECONDS = 2
GROUP = TargetsWithSameSpec(
    spec=TransferSpec(project_id="p", signature="a", user="root", folder="/data"),
    file_name="f",
    targets=[(1, "agent-1", "")],
)


async def test_a_batch_that_comes_late_goes_to_the_window_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that took ten windows, as while the engine is down, is not followed by nine windows that are over."""
    clock = SimpleNamespace(now=1_000.0, tried=[])

    async def start_and_join_job(_engine: Any, job: TransferJobInput, _batch: JoinBatch, *_: Any) -> JoinResult:
        job_id = names.parse_job_id(job.job_id)
        assert job_id
        clock.tried.append(job_id.window_number)
        if len(clock.tried) == 1:
            clock.now += 10 * WINDOW_SECONDS
        return JoinResult(is_open=clock.now < job.closes_at.timestamp(), batches=1, targets=1)

    monkeypatch.setattr(handle, "start_and_join_job", start_and_join_job)
    monkeypatch.setattr(time, "time", lambda: clock.now)
    settings = SimpleNamespace(transfers=Settings().transfers.model_copy(update={"window_seconds": WINDOW_SECONDS}))
    joiner = JobJoiner(cast("Services", SimpleNamespace(engine=None, settings=settings)))
    file = FileByBizAppAndPath(biz_id=2, app_id=7, path="/etc/app.conf")
    assert await joiner.join_job(file, GROUP) == 510
    assert clock.tried == [500, 510]
