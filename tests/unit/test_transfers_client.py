"""The client of transfers: what it sends, how it follows a job, and that its models are those of the API."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from api.transfers import requests, responses
from cli.transfers import follow_job
from haulage import ApiUnreachable, RequestRefused
from haulage.transfers import (
    PartlyRequested,
    RetryJob,
    Target,
    TargetsFailedAlike,
    TargetStatus,
    TransferFile,
    TransferJob,
    TransferJobSummary,
    Transfers,
    TransferState,
    TransferTask,
)
from haulage.transfers.client import BATCH_MAX
from tests.support.api_peer import ApiPeer, problem, running_api_peer

FILE = TransferFile(
    biz_id=2,
    app_id=7,
    file_path="/etc/app.conf",
    file_name="app.conf",
    signature="0" * 64,
    target_user="root",
    target_file_dir="/data",
)
JOB_ID = "AsyncDownloadJob:2:7:/etc/50% off.conf:118"
JOB = {
    "job_id": JOB_ID,
    "biz_id": 2,
    "app_id": 7,
    "file_path": "/etc/50% off.conf",
    "status": "Running",
    "partial": False,
    "counts": {"Running": 2, "Success": 1},
    "window_closes_at": "2026-11-24T10:00:00Z",
    "deadline_at": "2026-11-24T10:10:00Z",
    "targets": [],
    "next_cursor": None,
    "added_later": 1,
}


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """An API with scripted responses."""
    async with running_api_peer() as running:
        yield running


@pytest.fixture
async def transfers(peer: ApiPeer) -> AsyncIterator[Transfers]:
    """A client of it."""
    async with Transfers(peer.url, "hlg_key", patience_seconds=30.0) as opened:
        yield opened


def _build_created(job_id: str, targets: Iterable[Target]) -> dict[str, Any]:
    tasks = [
        {"task_id": f"t/{n}", "target_agent_id": each.target_agent_id, "target_container_id": ""}
        for n, each in enumerate(targets)
    ]
    return {"job_id": job_id, "tasks": tasks}


async def test_what_was_requested_before_a_refusal_is_said(peer: ApiPeer, transfers: Transfers) -> None:
    """The targets of the first request are sent to: their job must not be lost with the error of the second."""
    targets = [Target(target_agent_id=f"host-{n}") for n in range(BATCH_MAX + 1)]
    peer.says(202, _build_created(JOB_ID, targets[:BATCH_MAX]))
    peer.says(422, problem(422, "quota_too_small", "So many may never be open."))

    with pytest.raises(PartlyRequested) as partly:
        await transfers.send(FILE, targets)

    assert len(partly.value.tasks) == BATCH_MAX
    assert partly.value.facts == {"job_ids": [JOB_ID], "requested": BATCH_MAX}
    assert str(partly.value) == (
        f"Of 5,001 targets the first 5,000 are requested, by {JOB_ID}; "
        "the next request failed: So many may never be open."
    )


async def test_a_request_that_may_have_joined_a_window_is_not_repeated(peer: ApiPeer, transfers: Transfers) -> None:
    """The repetition could join the next window, and hosts got the file twice."""
    peer.says(0, None)
    with pytest.raises(ApiUnreachable, match="transfers:batch may have been carried out: look before you repeat it"):
        await transfers.send(FILE, [Target(target_agent_id="host-1")])
    assert len(peer.seen) == 1


async def test_targets_are_sent_in_batches_that_the_api_takes(peer: ApiPeer, transfers: Transfers) -> None:
    """Each task has the job of its batch, and the order of the targets stays."""
    targets = [Target(target_agent_id=f"agent-{number}") for number in range(BATCH_MAX + 1)]
    peer.says(202, _build_created("job-1", targets[:BATCH_MAX]))
    peer.says(202, _build_created("job-2", targets[BATCH_MAX:]))

    tasks = await transfers.send(FILE, targets)

    assert [len(seen.body["targets"]) for seen in peer.seen] == [BATCH_MAX, 1]
    assert peer.seen[1].body == FILE.model_dump() | {"targets": [targets[-1].model_dump()]}
    assert [task.target_agent_id for task in tasks] == [target.target_agent_id for target in targets]
    assert [tasks[0].job_id, tasks[-1].job_id] == ["job-1", "job-2"]


def test_a_batch_is_as_large_as_the_api_takes() -> None:
    """A larger one would be refused."""
    assert BATCH_MAX == requests.BATCH_TARGETS_MAX


async def test_a_job_is_watched_until_it_ends(peer: ApiPeer, transfers: Transfers) -> None:
    """A state that is repeated is yielded once; ids may hold any character of a path."""
    for change in ({}, {}, {"status": "Failed", "counts": {"Failed": 1, "Success": 2}, "partial": True}):
        peer.says(200, JOB | change)

    states = [job async for job in transfers.watch(JOB_ID)]

    assert [(job.status, job.ended, job.total) for job in states] == [
        (TransferState.RUNNING, 1, 3),
        (TransferState.FAILED, 3, 3),
    ]
    assert {seen.line for seen in peer.seen} == {f"GET /v1/transfers/jobs/{JOB_ID}"}


async def test_targets_of_a_job_are_read_page_by_page(peer: ApiPeer, transfers: Transfers) -> None:
    """With the filter on every page."""
    failed = {"status": "Failed", "reason": "gse_code", "code": 104, "target_agent_id": "agent-1"}
    peer.says(200, JOB | {"targets": [failed], "next_cursor": "17"})
    peer.says(200, JOB | {"targets": [failed | {"target_agent_id": "agent-2"}]})

    found = [each async for each in transfers.list_targets(JOB_ID, status=TransferState.FAILED)]

    assert [(each.target_agent_id, each.code) for each in found] == [("agent-1", 104), ("agent-2", 104)]
    assert [seen.query.get("cursor") for seen in peer.seen] == [None, "17"]
    assert {seen.query["status"] for seen in peer.seen} == {"Failed"}


async def test_jobs_are_listed_page_by_page(peer: ApiPeer, transfers: Transfers) -> None:
    """Those that match."""
    peer.says(200, {"items": [JOB], "next_cursor": "a"})
    peer.says(200, {"items": [JOB | {"job_id": "other"}], "next_cursor": None})

    found = [job.job_id async for job in transfers.list_jobs(ended=False, search="/etc")]

    assert found == [JOB_ID, "other"]
    assert peer.seen[1].query == {"ended": "false", "search": "/etc", "cursor": "a"}


async def test_a_retry_without_failures_is_refused(peer: ApiPeer, transfers: Transfers) -> None:
    """By the API's code."""
    peer.says(409, problem(409, "nothing_failed", "No target has failed."))

    with pytest.raises(RequestRefused) as refused:
        await transfers.retry(JOB_ID, reason="gse_code")

    assert refused.value.code == "nothing_failed"
    assert (peer.seen[0].line, peer.seen[0].body) == (
        f"POST /v1/transfers/jobs/{JOB_ID}/retry",
        {"reason": "gse_code"},
    )


def test_a_local_file_is_described(tmp_path: Path) -> None:
    """Its signature is that of its bytes, and it has its own name in the repository unless another path is given."""
    path = tmp_path / "app.conf"
    path.write_bytes(b"listen = 80\n")

    file = TransferFile.from_local(path, biz_id=2, app_id=7, target_user="root", target_file_dir="/data")

    assert (file.file_path, file.file_name) == ("/app.conf", "app.conf")
    assert file.signature == hashlib.sha256(b"listen = 80\n").hexdigest()


@pytest.mark.parametrize(
    ("server", "client", "only_server", "only_client"),
    [
        pytest.param(requests.TransferFileRequest, TransferFile, (), (), id="file"),
        pytest.param(requests.TargetRequest, Target, (), (), id="target"),
        pytest.param(responses.CreatedTransferTask, TransferTask, (), {"job_id"}, id="created task"),
        pytest.param(
            responses.TargetStatusAndIdentity, TargetStatus, {"gse_task_id", "deadline_at"}, (), id="state of a task"
        ),
        pytest.param(responses.TransferTargetResponse, TargetStatus, (), (), id="target of a job"),
        pytest.param(responses.TransferJobSummary, TransferJobSummary, (), (), id="summary of a job"),
        pytest.param(responses.TransferJobResponse, TransferJob, {"targets", "next_cursor"}, (), id="job"),
        pytest.param(responses.TargetsFailedAlike, TargetsFailedAlike, (), (), id="failures"),
        pytest.param(responses.RetryTransferJobResponse, RetryJob, (), (), id="retry"),
    ],
)
def test_models_have_the_fields_of_the_api(
    server: type[BaseModel], client: type[BaseModel], only_server: Iterable[str], only_client: Iterable[str]
) -> None:
    """Except for those that are named here with the pair."""
    assert server.model_fields.keys() - client.model_fields.keys() == set(only_server)
    assert client.model_fields.keys() - server.model_fields.keys() == set(only_client)


async def test_a_terminal_shows_what_gse_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """At once, and again when GSE was asked twice as often; not what a single poll more found."""

    class Watched:
        async def watch(self, job_id: str) -> AsyncIterator[TransferJob]:
            for tries in (0, 1, 2, 3, 4, 0):
                said = TargetsFailedAlike(
                    status=TransferState.RUNNING, meaning=f"asked {tries}", count=2, attempts=tries
                )
                yield build_job(job_id, failures_by_reason=[said] if tries else [])

    class Display:
        def show(self, *_: object) -> None:
            """Show nothing."""

    await follow_job(cast("Transfers", Watched()), "job-1", Display())

    assert capsys.readouterr().err.splitlines() == [f"haulage: 2 hosts: asked {tries}" for tries in (1, 2, 4)]


def build_job(job_id: str, **fields: Any) -> TransferJob:
    """Build the state of a job that runs."""
    now = datetime.now(UTC)
    return TransferJob(
        job_id=job_id,
        biz_id=1,
        app_id=1,
        file_path="/a",
        status=TransferState.RUNNING,
        partial=False,
        counts={TransferState.RUNNING: 2},
        window_closes_at=now,
        deadline_at=now,
        **fields,
    )
