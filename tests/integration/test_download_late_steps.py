"""Steps whose worker was suspended while another one went on: what they still do must not undo what has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from domain.downloads import names
from domain.downloads.activity_models import ProbeInput, RecordEndInput
from domain.downloads.models import DownloadResult, DownloadState
from infra.heartbeats import AttemptReplaced, require_current_attempt
from infra.settings import Settings
from services import services
from services.services import Services
from stores.downloads import catalogue
from tests.support.download_steps import build_spec, make_activities

pytestmark = pytest.mark.stack


@workflow.defn(sandboxed=False)
class OneStep:
    """One activity, attempted twice."""

    @workflow.run
    async def run(self) -> None:
        """Wait for it."""
        await workflow.execute_activity("step", start_to_close_timeout=timedelta(minutes=2))


class Step:
    """An activity that fails once, and asks at each attempt whether that counts."""

    def __init__(self) -> None:
        self.attempts: list[activity.Info] = []

    @activity.defn(name="step")
    async def run(self) -> None:
        """Ask, and fail at the first attempt."""
        self.attempts.append(activity.info())
        await require_current_attempt()
        if len(self.attempts) == 1:
            raise ConnectionError("try it again")


@pytest.fixture
async def held(settings: Settings) -> AsyncIterator[Services]:
    """The clients."""
    async with services.open_services(settings) as opened:
        yield opened


@pytest.fixture(params=["first", "last"])
async def late(held: Services, request: pytest.FixtureRequest) -> ActivityEnvironment:
    """An attempt that another one has replaced, or whose workflow has ended."""
    step = Step()
    async with Worker(held.engine, task_queue="steps", workflows=[OneStep], activities=[step.run]):
        await held.engine.execute_workflow(OneStep.run, id=uuid4().hex, task_queue="steps")
    assert len(step.attempts) == 2, "each attempt has to count while it runs"
    environment = ActivityEnvironment(held.engine)
    environment.info = step.attempts[0 if request.param == "first" else 1]
    return environment


@pytest.mark.parametrize("step", ["probe", "clean-up", "end"])
async def test_a_late_step_changes_nothing(held: Services, late: ActivityEnvironment, step: str) -> None:
    """The file that another attempt has finished stays, and so does what is recorded of it."""
    spec = build_spec(held, "http://unused.example")
    key, activities = names.build_file_key(spec), make_activities(held)
    done, failed = (
        RecordEndInput(spec=spec, outcome=DownloadResult(state=state), times_processed=1, fetchers=1)
        for state in (DownloadState.SUCCEEDED, DownloadState.FAILED)
    )
    await catalogue.record_processing_start(held.database, spec, 1)
    await held.objects.put(key, b"rows")
    await catalogue.record_result_and_notify(held.database, done)
    calls: dict[str, tuple[Any, Any]] = {
        "probe": (activities.probe_and_begin_uploads_or_make_small_file, ProbeInput(spec=spec, times_processed=1)),
        "clean-up": (activities.delete_unfinished, spec),
        "end": (activities.record_end_release_slots_and_delete_inline_rows, failed),
    }

    with pytest.raises(AttemptReplaced):
        await late.run(calls[step][0], calls[step][1])
    row = await catalogue.find_download(held.database, spec.project_id, spec.task_id)
    assert row is not None
    assert row.state == DownloadState.SUCCEEDED
    assert await held.objects.get(key) == b"rows"


async def test_an_end_leaves_a_deleted_file_deleted(held: Services) -> None:
    """The end of a small file is recorded by the worker of its workflow, of which no attempt can be asked for."""
    spec = build_spec(held, "http://unused.example")
    end = RecordEndInput(
        spec=spec, outcome=DownloadResult(state=DownloadState.SUCCEEDED), times_processed=1, fetchers=1
    )
    await catalogue.record_processing_start(held.database, spec, 1)
    await catalogue.record_result_and_notify(held.database, end)
    await catalogue.delete_file_and_mark_expired(held.database, held.objects, spec)
    await catalogue.record_result_and_notify(held.database, end)

    row = await catalogue.find_download(held.database, spec.project_id, spec.task_id)
    assert row is not None
    assert row.state == DownloadState.EXPIRED
