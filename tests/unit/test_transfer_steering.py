"""Cancelling and retrying jobs, where requests for one job come at the same time or again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.daily_quotas import DAILY_QUOTAS
from api.http.problems import RequestRejected
from api.http.routes import Call
from api.transfers import actions
from api.transfers.context import BatchedTransferLookup
from api.transfers.joins import JoinTimeout
from api.transfers.quotas import OPEN_TRANSFERS
from api.transfers.requests import TransferJobPath
from domain.faults import Conflict, QuotaExhausted
from domain.transfers import names
from domain.transfers.joining import FailedTargetsRetry, TargetsWithSameSpec
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey
from infra.outages import EngineUnresponsive
from services.services import Services
from stores.transfers import jobs, targets

JOB_ID = "AsyncDownloadJob:2:7:/etc/app.conf:500"
RETRY = FailedTargetsRetry(job_id=JOB_ID, project_id="p", targets=3)


class Jobs:
    """What the engine and the database have of retries."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.saved: set[str] = set()
        self.failed = 3
        self.signals = 0

    async def start_retry(self, job: TransferJobKey, _retry: FailedTargetsRetry) -> bool:
        """Act as the engine."""
        if str(job) in self.started:
            return False
        self.started.add(str(job))
        return True

    async def is_running(self, job_id: str) -> bool:
        """Act as the engine."""
        return job_id in self.started

    async def refuse_further_targets(self, *_: str) -> None:
        """Act as the engine."""
        self.signals += 1

    async def filter_saved_job_ids(self, _database: Any, job_ids: Sequence[str]) -> set[str]:
        """Act as the store."""
        return self.saved & set(job_ids)

    async def count_failed(self, *_: Any) -> int:
        """Act as the store."""
        return self.failed


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """An engine and a database."""
    known = Jobs()
    context = SimpleNamespace(joiner=known, lookup=known)
    monkeypatch.setattr(actions, "get_transfer_context", lambda _call: context)
    monkeypatch.setattr(actions, "EARLIER_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(actions, "EARLIER_RETRY_POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "filter_saved_job_ids", known.filter_saved_job_ids)
    monkeypatch.setattr(targets, "count_failed_without_retry", known.count_failed)
    return known


async def start_retry() -> str:
    """Ask for a retry; the job that sends the targets again."""
    job = names.parse_job_id(JOB_ID)
    assert job
    call = cast("Call", SimpleNamespace(services=SimpleNamespace(database=None), project_id="p"))
    return (await actions._start_retry_under_free_number(call, job, 1, RETRY)).job_id


async def test_a_retry_waits_for_no_targets_of_another_project(known: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are shared; a job that is saved has all its targets, whosoever they are."""
    monkeypatch.setattr(actions, "EARLIER_RETRY_SECONDS", 0.0)
    known.started, known.saved = {f"{JOB_ID}.1", f"{JOB_ID}.2"}, {f"{JOB_ID}.1", f"{JOB_ID}.2"}
    assert await start_retry() == f"{JOB_ID}.3"


async def test_a_number_that_the_engine_has_forgotten_is_not_used_again(known: Jobs) -> None:
    """The job of that number has its targets already, and would send none."""
    known.saved = {f"{JOB_ID}.1"}
    assert await start_retry() == f"{JOB_ID}.2"


async def test_while_an_earlier_retry_is_not_saved_no_other_is_accepted(known: Jobs) -> None:
    """It may take all failed targets, and the other job would have none."""
    known.started = {f"{JOB_ID}.1"}
    with pytest.raises(EngineUnresponsive):
        await start_retry()
    known.saved, known.failed = set(known.started), 0
    with pytest.raises(Conflict):
        await start_retry()
    assert known.started == {f"{JOB_ID}.1"}


async def test_a_job_that_is_cancelled_is_not_signalled_again(known: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signal is in the history of the job, which several projects may share."""
    job = SimpleNamespace(status=SimpleNamespace(is_final=False), cancelling=False)

    async def read_job(*_: Any) -> Any:
        return job

    async def save_cancellation(*_: Any) -> None:
        job.cancelling = True

    monkeypatch.setattr(actions, "read_job", read_job)
    monkeypatch.setattr(targets, "save_cancellation", save_cancellation)
    call = cast("Call", SimpleNamespace(services=SimpleNamespace(database=None), project_id="p"))
    for _ in range(3):
        assert (await actions.cancel_job(call, TransferJobPath(job_id=JOB_ID))).cancelling

    assert known.signals == 1


async def test_an_id_that_is_longer_than_any_job_s_names_none() -> None:
    """The engine, which refuses it as an error, is not asked."""
    lookup = BatchedTransferLookup(cast("Services", SimpleNamespace(database=None, engine=None)))
    job_id = f"AsyncDownloadJob:2:7:/{'f' * 300}:500"
    assert names.parse_job_id(job_id)
    assert await lookup.count_joined_targets(job_id, "p") == 0


@pytest.mark.parametrize(
    ("error", "open_", "daily"),
    [
        (QuotaExhausted("window_full", "Full.", "Wait.", retry_after_seconds=1), 0, 0),
        (RequestRejected(HTTPStatus.SERVICE_UNAVAILABLE, "no_workers", "No.", "Wait."), 0, 0),
        (JoinTimeout("no answer"), 3, 0),
    ],
    ids=["full", "no workers", "no answer"],
)
async def test_what_was_not_accepted_is_not_counted_for_the_day(
    known: Jobs, monkeypatch: pytest.MonkeyPatch, error: Exception, open_: int, daily: int
) -> None:
    """Callers repeat it for as long as an outage lasts; what may have joined is open until the window is over."""
    counts = Counter[str]()

    async def join_job(*_: Any) -> int:
        counts.update({"open": 3, "daily": 3})
        raise error

    async def count_targets(*_: Any) -> None:
        pass

    monkeypatch.setattr(known, "join_job", join_job, raising=False)
    monkeypatch.setattr(actions, "count_targets_within_quotas", count_targets)
    app = {
        OPEN_TRANSFERS: SimpleNamespace(uncount_targets_that_did_not_join=lambda *_: counts.subtract({"open": 3})),
        DAILY_QUOTAS: SimpleNamespace(release=lambda *_: counts.subtract({"daily": 3})),
    }
    call = cast("Call", SimpleNamespace(project_id="p", request=SimpleNamespace(app=app)))
    context = SimpleNamespace(joiner=known, window_seconds=15)
    monkeypatch.setattr(actions, "get_transfer_context", lambda _call: context)
    spec = TransferSpec(project_id="p", signature="a" * 64, user="root", folder="/data")
    group = TargetsWithSameSpec(spec=spec, file_name="f", targets=[(key, f"agent-{key}", "") for key in range(3)])
    with pytest.raises(type(error)):
        await actions._join_in_quota_and_get_window(call, FileByBizAppAndPath(biz_id=2, app_id=7, path="/f"), group)

    assert (counts["open"], counts["daily"]) == (open_, daily)
