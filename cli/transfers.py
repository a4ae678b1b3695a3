# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage transfers`: a file to hosts from a terminal, followed until each has it or it is known why not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import command
from cli.command import Api, ApiAddress, AsJson, CommandFault, CommandOutput, DataDir
from cli.progress import ProgressDisplay
from haulage.errors import RequestRefused, WorkFailed

if TYPE_CHECKING:
    from haulage.transfers import TransferFile, TransferJob, Transfers

app = typer.Typer(no_args_is_help=True, help="Send files of the repository to hosts.")

JobId = Annotated[str, typer.Argument(help="Id of a job, as `send` printed it.")]
SHA256 = re.compile(r"[0-9a-f]{64}")


@app.command()
def send(
    file: Annotated[Path, typer.Argument(help="The file; with --signature, its path in the repository alone.")],
    to: Annotated[list[str] | None, typer.Option(help="A host, by its GSE agent id; repeatable.")] = None,
    hosts: Annotated[Path | None, typer.Option(help="A file with a host on each line.")] = None,
    folder: Annotated[str, typer.Option(help="The folder on the hosts.")] = "/data",
    user: Annotated[str, typer.Option(help="The user on the hosts.")] = "root",
    signature: Annotated[str | None, typer.Option(help="SHA-256 of a file that is not on this machine.")] = None,
    path: Annotated[str | None, typer.Option(help="Its path in the repository; by default its name.")] = None,
    biz: Annotated[int, typer.Option(help="The biz that it belongs to.")] = 1,
    app_id: Annotated[int, typer.Option("--app", help="The app that it belongs to.")] = 1,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to follow it to its end.")] = True,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send a file of the repository to hosts. Each gets it as FOLDER/SIGNATURE.

    Exit codes: 0 every host has the file (or, with --no-wait, the request is durable), 1 some hosts do not, 2 the
    request was wrong, 3 the API does not answer, 130 after Ctrl-C; the transfer goes on then.
    """
    from haulage.transfers import Target, Transfers

    async def send_and_describe(address: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        described = build_transfer_file(file, signature, path, biz=biz, app_id=app_id, user=user, folder=folder)
        targets = [Target(target_agent_id=host) for host in read_host_names_once_each(to or [], hosts)]
        async with Transfers(address.url, address.key) as transfers:
            try:
                tasks = await transfers.send(described, targets)
            except asyncio.CancelledError:
                command.print_warning(
                    "Stopped while the server was asked; `haulage ask /v1/transfers/jobs` shows whether it began."
                )
                raise
            job_ids = list(dict.fromkeys(task.job_id for task in tasks))
            if not wait:
                lines = (f"{len(tasks):,} hosts are requested.", *(f"job {job_id}" for job_id in job_ids))
                return CommandOutput({"job_ids": job_ids, "hosts": len(tasks)}, lines)
            return describe_jobs_or_raise_unless_all_succeeded(
                [await follow_job(transfers, job_id, progress) for job_id in job_ids]
            )

    _run_command(send_and_describe, api, data_dir, as_json=as_json)


@app.command()
def show(job_id: JobId, api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Follow a job to its end, and say which hosts have the file. Exit codes are those of `send`."""
    _run_command(_bind_client_and_job(_follow_and_describe_job, job_id), api, data_dir, as_json=as_json)


@app.command()
def retry(
    job_id: JobId,
    reason: Annotated[str | None, typer.Option(help="Only hosts that failed for this reason.")] = None,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send to the failed hosts of a job again, and follow that. Exit codes are those of `send`; 2 if none failed."""

    async def retry_and_follow(transfers: Transfers, progress: ProgressDisplay, job_id: str) -> CommandOutput:
        made = await transfers.retry(job_id, reason=reason)
        return describe_jobs_or_raise_unless_all_succeeded([await follow_job(transfers, made.job_id, progress)])

    _run_command(_bind_client_and_job(retry_and_follow, job_id), api, data_dir, as_json=as_json)


@app.command()
def cancel(job_id: JobId, api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Cancel what a job has not sent yet.

    Exit codes: 0 that is requested, or the job has ended, 2 there is no such job, 3 no answer.
    """

    async def cancel_and_describe(transfers: Transfers, _: ProgressDisplay, job_id: str) -> CommandOutput:
        before = await transfers.get_job(job_id)
        if before.status.final:
            lines = ("This job has ended; nothing was cancelled.",)
            return CommandOutput(_build_job_output_fields([before]), lines)
        job = await transfers.cancel_job(job_id)
        return CommandOutput(
            _build_job_output_fields([job]), (f"{job.job_id} is being cancelled; hosts that have the file keep it.",)
        )

    _run_command(_bind_client_and_job(cancel_and_describe, job_id), api, data_dir, as_json=as_json)


def build_transfer_file(
    file: Path, signature: str | None, path: str | None, *, biz: int, app_id: int, user: str, folder: str
) -> TransferFile:
    """Describe a file of this machine, or one of the repository by its signature.

    Raises:
        CommandFault: The file cannot be read, or the signature is no SHA-256.
    """
    from haulage.transfers import TransferFile

    if signature is None:
        try:
            signature = TransferFile.from_local(
                file, biz_id=biz, app_id=app_id, target_user=user, target_file_dir=folder
            ).signature
        except OSError as error:
            raise CommandFault(f"{file} cannot be read: {error.strerror}. Or give --signature.") from None
        path = path or file.name
    if not SHA256.fullmatch(signature):
        raise CommandFault(f"{signature!r} is no SHA-256: 64 digits and letters from a to f.")
    return TransferFile(
        biz_id=biz,
        app_id=app_id,
        file_path=path or str(file),
        file_name=file.name,
        signature=signature,
        target_user=user,
        target_file_dir=folder,
    )


def read_host_names_once_each(named: Sequence[str], path: Path | None) -> list[str]:
    """Return each host once: those that are named, then those of a file.

    Raises:
        CommandFault: There is none, or the file cannot be read.
    """
    try:
        listed = path.read_text().split() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFault(f"{path} cannot be read: {error}.") from None
    if not (hosts := list(dict.fromkeys([*named, *listed]))):
        raise CommandFault("No host is named. Give --to HOST, or --hosts FILE.")
    return hosts


async def follow_job(transfers: Transfers, job_id: str, progress: ProgressDisplay) -> TransferJob:
    """Show a job until it has ended, and what GSE answers while it answers errors; return the job's last state."""
    warned_attempts = 0
    try:
        async for job in transfers.watch(job_id):
            progress.show("transfer", job.ended, job.total, describe_job_progress(job))
            warned_attempts = _warn_if_gse_fails_twice_as_often(job, warned_attempts)
    except asyncio.CancelledError:
        command.print_warning(
            f"The transfer goes on. `haulage transfers show {job_id}` follows it, "
            f"`haulage transfers cancel {job_id}` ends it."
        )
        raise
    return job


def describe_job_progress(job: TransferJob) -> str:
    """Return how many hosts have ended, or until when further requests join the job."""
    # The job of a retry has the window of the first one, which is over.
    if job.ended or job.window_closes_at <= datetime.now(UTC):
        return f"{job.ended:,} of {job.total:,} hosts"
    return f"window open until {job.window_closes_at.astimezone(UTC):%H:%M:%S} UTC"


def _warn_if_gse_fails_twice_as_often(job: TransferJob, warned_attempts: int) -> int:
    """Print what GSE answers while it answers errors; return after how many tries that was printed, 0 if it serves."""
    # GSE may be asked every second: a line follows when it was asked twice as often.
    failing = next((group for group in job.failures_by_reason if group.attempts), None)
    if failing is None or failing.attempts is None:
        return 0
    if failing.attempts < max(1, 2 * warned_attempts):
        return warned_attempts
    command.print_warning(f"{failing.count:,} hosts: {failing.meaning}")
    return failing.attempts


def describe_jobs_or_raise_unless_all_succeeded(jobs: Sequence[TransferJob]) -> CommandOutput:
    """Describe jobs that have ended.

    Raises:
        WorkFailed: Some hosts do not have the file.
    """
    total = sum(job.total for job in jobs)
    arrived = sum(count for job in jobs for state, count in job.counts.items() if state == "Success")
    lines = [f"{arrived:,} of {total:,} hosts have the file."]
    lines += [f"  {group.count:,}: {group.meaning}" for job in jobs for group in job.failures_by_reason]
    lines += [f"job {job.job_id}" for job in jobs]
    if arrived < total:
        raise WorkFailed("\n".join(lines), _build_job_output_fields(jobs))
    return CommandOutput(_build_job_output_fields(jobs), tuple(lines))


def _build_job_output_fields(jobs: Sequence[TransferJob]) -> dict[str, Any]:
    wanted = {"job_id", "status", "counts", "failures_by_reason", "cancelling"}
    return {"jobs": [job.model_dump(mode="json", include=wanted) for job in jobs]}


async def _follow_and_describe_job(transfers: Transfers, progress: ProgressDisplay, job_id: str) -> CommandOutput:
    return describe_jobs_or_raise_unless_all_succeeded([await follow_job(transfers, job_id, progress)])


def _bind_client_and_job(
    work: Callable[[Transfers, ProgressDisplay, str], Awaitable[CommandOutput]], job_id: str
) -> Callable[[ApiAddress, ProgressDisplay], Awaitable[CommandOutput]]:
    """Return what does the work about a job with a client."""
    from haulage.transfers import Transfers

    async def connect_and_work(address: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        async with Transfers(address.url, address.key) as transfers:
            try:
                return await work(transfers, progress, job_id)
            except RequestRefused as refused:
                raise RequestRefused(
                    refused.status, refused.code, f"{job_id}: {refused}", refused.request_id
                ) from refused

    return connect_and_work


def _run_command(
    work: Callable[[ApiAddress, ProgressDisplay], Awaitable[CommandOutput]],
    api: str | None,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    command.run_at_terminal_and_exit(command.run_with_api(data_dir, api, work, as_json=as_json))
