"""Client of transfers: send a file to hosts, follow tasks and jobs, cancel them, and send failed targets again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from haulage.errors import HaulageError, WorkFailed
from haulage.transfers.models import (
    RetryJob,
    Target,
    TargetStatus,
    TransferFile,
    TransferJob,
    TransferJobSummary,
    TransferState,
    TransferTask,
)
from haulage.transport import RetryingApiTransport, encode_path_step

FIRST_POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 2.0
BATCH_MAX = 5_000
"""Targets that the API takes in one request."""
PAGE_SIZE = 1_000
"""Targets of a job in one response."""


class PartlyRequested(WorkFailed):
    """The file was requested for some of the targets only. `tasks` are those of the targets that are sent to."""

    def __init__(self, tasks: Sequence[TransferTask], total: int, error: HaulageError) -> None:
        self.tasks = tasks
        job_ids = list(dict.fromkeys(task.job_id for task in tasks))
        sentence = (
            f"Of {total:,} targets the first {len(tasks):,} are requested, by {', '.join(job_ids)}; the next request "
            f"failed: {error}"
        )
        super().__init__(sentence, {"job_ids": job_ids, "requested": len(tasks)})


class Transfers:
    """Client of the transfers of a project.

    Requests are retried for `patience_seconds` while the API does not answer. A target that is requested twice within
    one window is sent to once, and in two windows twice: `send` is retried only where it cannot have begun.

        async with Transfers("https://haulage.example.com", key) as transfers:
            [task] = await transfers.send(file, [Target(target_agent_id="020000000242010a")])
            async for job in transfers.watch(task.job_id):
                print(job.status, job.ended, job.total)

    Raises:
        RequestRefused: By every method, if the API refuses the request.
        ApiUnreachable: By every method, if there is no answer within `patience_seconds`.
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = RetryingApiTransport(base_url, key, patience_seconds)

    async def __aenter__(self) -> Transfers:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def send(self, file: TransferFile, targets: Sequence[Target]) -> list[TransferTask]:
        """Request the file for targets; return their tasks in the same order, once all are durable.

        Requests that come within one window form a job. Several thousand targets may become several jobs: each task
        names its own.

        Raises:
            PartlyRequested: A request failed after others, whose targets are sent to.
            ApiUnreachable: Also where the answer was lost; the file may be sent then, as `list_jobs` shows.
        """
        tasks: list[TransferTask] = []
        for at in range(0, len(targets), BATCH_MAX):
            batch = [target.model_dump() for target in targets[at : at + BATCH_MAX]]
            body = file.model_dump() | {"targets": batch}
            try:
                response = await self._transport.request_json(
                    "POST", "/v1/transfers:batch", is_repeatable=False, json=body
                )
            except HaulageError as error:
                if not tasks:
                    raise
                raise PartlyRequested(tasks, len(targets), error) from error
            job = {"job_id": response["job_id"]}
            tasks += [TransferTask.model_validate(each | job) for each in response["tasks"]]
        return tasks

    async def get(self, task_id: str) -> TargetStatus:
        """Return the state of a task, which is that of its target."""
        return TargetStatus.model_validate(await self._transport.request_json("GET", _build_path(task_id)))

    async def get_job(self, job_id: str) -> TransferJob:
        """Return the state of a job."""
        path = _build_path(job_id, "jobs/")
        return TransferJob.model_validate(await self._transport.request_json("GET", path, params={"limit": "1"}))

    async def watch(self, job_id: str) -> AsyncIterator[TransferJob]:
        """Yield the state of a job whenever it changes, until every target of the project in it has ended."""
        last, pause = None, FIRST_POLL_SECONDS
        while last is None or not last.status.final:
            if last is not None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
            now = await self.get_job(job_id)
            if now != last:
                yield now
            last = now

    async def list_targets(
        self, job_id: str, *, status: TransferState | None = None, reason: str | None = None
    ) -> AsyncIterator[TargetStatus]:
        """Yield the targets of a job whose window has ended; all, or those in a state or with a reason."""
        filters = {"status": status, "reason": reason, "limit": str(PAGE_SIZE)}
        params = {name: str(value) for name, value in filters.items() if value is not None}
        while True:
            page = await self._transport.request_json("GET", _build_path(job_id, "jobs/"), params=params)
            for each in page["targets"]:
                yield TargetStatus.model_validate(each)
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]

    async def list_jobs(
        self, *, ended: bool | None = None, search: str | None = None
    ) -> AsyncIterator[TransferJobSummary]:
        """Yield the project's jobs, those of the newest window first.

        Args:
            ended: True for jobs all of whose targets have ended, False for the others.
            search: Only jobs whose id contains this text, such as the path of the file.
        """
        filters = {"ended": None if ended is None else str(ended).lower(), "search": search}
        params = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = await self._transport.request_json("GET", "/v1/transfers/jobs", params=params)
            for each in page["items"]:
                yield TransferJobSummary.model_validate(each)
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]

    async def cancel(self, task_id: str) -> TargetStatus:
        """Cancel a task; a target that has ended is not changed."""
        return TargetStatus.model_validate(await self._transport.request_json("POST", _build_path(task_id) + "/cancel"))

    async def cancel_job(self, job_id: str) -> TransferJob:
        """Cancel all targets of the project in a job that have not ended."""
        return TransferJob.model_validate(
            await self._transport.request_json("POST", _build_path(job_id, "jobs/") + "/cancel")
        )

    async def retry(self, job_id: str, *, reason: str | None = None) -> RetryJob:
        """Send the failed targets of a job again, all or those of one reason, as a job of their own.

        Raises:
            RequestRefused: With the code `nothing_failed` if none failed, or another job sends them again already.
        """
        body = {} if reason is None else {"reason": reason}
        path = _build_path(job_id, "jobs/") + "/retry"
        return RetryJob.model_validate(await self._transport.request_json("POST", path, json=body))


def _build_path(id_: str, prefix: str = "") -> str:
    """Build the path of a task or a job; its id holds the path of the file."""
    return f"/v1/transfers/{prefix}{encode_path_step(id_)}"
