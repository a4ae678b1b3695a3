"""The API that odd requests are sent to, and the count of them that a run prints at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from api.http.middleware import REQUESTS
from domain.quotas import DownloadQuotaLimits, QuotaLimits
from infra.settings import Settings
from sims.source import Source, running_source
from tests.support.api import ApiClient, running_api
from tests.support.reporting import FUZZED
from tests.support.worker import running_worker


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    """The only machine that downloads reach."""
    async with running_source() as running:
        yield running


@pytest.fixture
async def api_client(settings: Settings, source: Source, request: pytest.FixtureRequest) -> AsyncIterator[ApiClient]:
    """The whole API, with a worker, few reasons to say no, and no way out to strangers' machines."""
    plenty = DownloadQuotaLimits(downloads_per_minute=100_000, active=100_000)
    downloads = settings.downloads.model_copy(update={"operator_quotas": plenty})
    quotas = QuotaLimits(requests_per_minute=10_000_000, downloads_per_minute=100_000, downloads_active=100_000)
    guard = settings.guard.model_copy(update={"ports": [], "allow": [source.base.removeprefix("http://")]})
    # Who waits for tasks waits in vain here.
    tasks = settings.tasks.model_copy(update={"wait_max_seconds": 0.1})
    api = settings.api.model_copy(update={"ping_seconds": 1.0})
    changed = {"api": api, "downloads": downloads, "guard": guard, "tasks": tasks, "quotas": quotas}
    settings = settings.model_copy(update=changed)
    before = _count_answers()
    async with running_api(settings) as api_client, running_worker(settings):
        yield api_client
    answers = {status: number - before.get(status, 0) for status, number in _count_answers().items()}
    request.node.user_properties.append((FUZZED, answers))


def _count_answers() -> dict[str, int]:
    """Count the requests that APIs of this process have answered, by status; it serves them all itself."""
    counts: dict[str, int] = {}
    for sample in (sample for metric in REQUESTS.collect() for sample in metric.samples):
        if sample.name.endswith("_count"):
            status = sample.labels["status"]
            counts[status] = counts.get(status, 0) + int(sample.value)
    return counts
