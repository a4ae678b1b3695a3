"""Steps whose worker was frozen while another one went on: what they still do must not undo what has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from domain.downloads import names
from domain.downloads.activity_models import ProbeInput, RecordEndInput
from domain.downloads.models import DownloadResult, DownloadState
from infra.settings import Settings
from services import services
from services.services import Services
from stores.downloads import catalogue
from stores.downloads.catalogue import DownloadHasEnded
from tests.support.download_steps import build_spec, make_activities

pytestmark = pytest.mark.stack


@pytest.fixture
async def held(settings: Settings) -> AsyncIterator[Services]:
    """The clients."""
    async with services.open_services(settings) as opened:
        yield opened


async def test_a_late_end_leaves_a_retry_alone(held: Services) -> None:
    """The download is neither shown as failed again, nor is its file lost."""
    spec, failed = build_spec(held, "http://unused.example"), DownloadResult(state=DownloadState.FAILED)
    late = RecordEndInput(spec=spec, outcome=failed, processings=1, fetchers=1)
    for processings in (1, 2):
        await catalogue.record_processing_start(held.database, spec, processings)
        await catalogue.record_result_and_notify(held.database, late)
    row = await catalogue.find_download(held.database, spec.project_id, spec.task_id)
    assert row is not None
    assert row.state == DownloadState.RUNNING


@pytest.mark.parametrize("step", ["probe", "clean-up"])
async def test_a_late_step_leaves_a_finished_file(held: Services, step: str) -> None:
    """Both delete what an unfinished download left in the store."""
    spec = build_spec(held, "http://unused.example")
    key, activities = names.build_file_key(spec), make_activities(held)
    done = RecordEndInput(spec=spec, outcome=DownloadResult(state=DownloadState.SUCCEEDED), processings=1, fetchers=1)
    await catalogue.record_processing_start(held.database, spec, 1)
    await held.objects.put(key, b"rows")
    await catalogue.record_result_and_notify(held.database, done)
    calls: dict[str, tuple[Any, Any]] = {
        "probe": (activities.probe_and_begin_uploads_or_make_small_file, ProbeInput(spec=spec, processings=1)),
        "clean-up": (activities.delete_unfinished, spec),
    }

    with pytest.raises(DownloadHasEnded):
        await ActivityEnvironment().run(calls[step][0], calls[step][1])
    assert await held.objects.get(key) == b"rows"
