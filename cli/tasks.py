# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage tasks`: queues of tasks from a terminal: register a type, create tasks, follow them, and run a worker.

The exit codes are those of all commands (`cli/command.py`).
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import command, wording
from cli.command import Api, ApiAddress, AsJson, CommandFault, CommandOutput, DataDir, ExitCode
from cli.progress import ProgressDisplay
from haulage.errors import HaulageError, WorkFailed

if TYPE_CHECKING:
    from haulage.tasks import HeldTask, Task, TaskCountsByState, TaskDetails, Tasks, Worker

app = typer.Typer(no_args_is_help=True, help="Queue tasks for workers, and run one.")

POLL_SECONDS = 0.3
LEFT_SECONDS = 10.0
"""How long what a program has started may keep its standard error open after its end."""
KILLED_SECONDS = 2.0
ERROR_CHARACTERS = 300
READ_BYTES = 64 * 1024
TypeName = Annotated[str, typer.Argument(help="Name of a type of tasks.")]
TaskIds = Annotated[list[str], typer.Argument(help="Ids of tasks, as `haulage tasks create` prints them.")]


class TasksRefused(WorkFailed):
    """Some of many tasks were refused."""


class ProgramFailed(HaulageError):
    """The program did not do a task."""


@app.command()
def register(
    task_type: TypeName,
    retries: Annotated[int | None, typer.Option(help="Retries after the first attempt; 3 by default.")] = None,
    lease_seconds: Annotated[
        int | None, typer.Option(help="Seconds within which a worker must report; 30 by default.")
    ] = None,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Register a type of tasks, or change the options that are given."""

    from haulage.tasks import TaskType

    async def register_type_and_describe(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        await tasks.register(TaskType(task_type=task_type, max_retry_num=retries, max_processing_time=lease_seconds))
        [found] = [each for each in await tasks.types() if each.task_type == task_type]
        line = f"{task_type}: {found.max_retry_num} retries, a lease of {found.max_processing_time:.0f} s"
        return CommandOutput(found.model_dump(mode="json"), (line,))

    run_with_client(register_type_and_describe, api, data_dir, as_json)


@app.command()
def create(
    task_type: TypeName,
    contents: Annotated[list[str] | None, typer.Argument(help="Contents, one task each.")] = None,
    file: Annotated[Path | None, typer.Option(help="A file with one content a line, in addition.")] = None,
    should_register: Annotated[bool, typer.Option("--register", help="Register the type first if it is new.")] = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Create tasks; they are durable when the command returns. Their ids are printed, one a line.

    Exit codes: 0 all were created, 1 some were refused, 2 the request was wrong, 3 the API does not answer.
    """
    from haulage.tasks import NewTask, TaskType

    new: list[NewTask] = []

    def read_contents_once() -> None:
        # A pipe is empty when it is read again.
        texts = [*(contents or []), *(command.read_lines(file) if file else [])]
        if not texts:
            raise CommandFault("No task was given. Give contents after the type, or --file.")
        new.extend(NewTask(task_type=task_type, task_content=text) for text in texts)

    async def create_tasks_and_list_ids(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        if should_register:
            await tasks.register(TaskType(task_type=task_type))
        outcomes = await tasks.create_many(new)
        ids = [outcome.task_id for outcome in outcomes if outcome.good]
        if refused := [outcome.msg for outcome in outcomes if not outcome.good]:
            sentence = f"{len(refused):,} of {len(new):,} tasks were refused: {strip_fail_reason_prefix(refused[0])}"
            raise TasksRefused(sentence, {"task_ids": ids, "refused": len(refused)})
        return CommandOutput({"task_ids": ids}, tuple(ids))

    run_with_client(create_tasks_and_list_ids, api, data_dir, as_json, read_contents_once)


@app.command()
def counts(
    task_type: Annotated[str | None, typer.Argument(help="Name of a type; without it, a line of each.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait, with a bar, until no task is left to do.")] = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Count the tasks of a type, or of each, by state. With `--wait` the exit code is 1 if tasks have failed."""
    if wait and task_type is None:
        raise typer.BadParameter("name the type whose tasks are waited for.", param_hint="--wait")

    async def count_or_wait_until_done(tasks: Tasks, progress: ProgressDisplay) -> CommandOutput:
        if task_type is None:
            return await _count_each_type(tasks)
        found = await tasks.counts(task_type)
        while wait and found.pending + found.running:
            ended = found.task_count - found.pending - found.running
            progress.show(task_type, ended, found.task_count, f"{ended:,} of {found.task_count:,} tasks")
            await asyncio.sleep(POLL_SECONDS)
            found = await tasks.counts(task_type)
        fields = found.model_dump(mode="json")
        if wait and found.failed:
            raise WorkFailed(f"{found.failed:,} of {found.task_count:,} tasks have failed.", fields)
        return CommandOutput(fields, (format_counts_line(task_type, found),))

    run_with_client(count_or_wait_until_done, api, data_dir, as_json)


async def _count_each_type(tasks: Tasks) -> CommandOutput:
    found = {each.task_type: await tasks.counts(each.task_type) for each in await tasks.types()}
    fields = [{"task_type": name, **counted.model_dump(mode="json")} for name, counted in found.items()]
    none = () if found else ("No type is registered. `haulage tasks register` does it.",)
    return CommandOutput({"types": fields}, tuple(format_counts_line(*each) for each in found.items()), none)


@app.command()
def show(task_ids: TaskIds, api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show tasks: state, content, and the attempts that did not end them."""

    async def describe_tasks_and_attempts(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        found = [await tasks.get(task_id) for task_id in task_ids]
        lines = tuple(line for task in found for line in format_task_and_attempt_lines(task))
        return CommandOutput({"tasks": [task.model_dump(mode="json") for task in found]}, lines)

    run_with_client(describe_tasks_and_attempts, api, data_dir, as_json)


@app.command(name="list")
def list_(
    task_type: TypeName,
    status: Annotated[str | None, typer.Option(help="pending, running, success, failed or cancelled.")] = None,
    user: Annotated[str | None, typer.Option(help="Those of this user.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=2_000, help="How many at most.")] = 20,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List tasks of a type, newest first."""
    from haulage.tasks import Status

    async def list_matching_tasks(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        wanted = Status[status.upper()] if status else None
        found = await tasks.find(task_type=task_type, status=wanted, user_id=user, limit=limit)
        lines = tuple(map(format_task_line, found)) or ("There is no such task.",)
        return CommandOutput({"tasks": [task.model_dump(mode="json") for task in found]}, lines)

    run_with_client(list_matching_tasks, api, data_dir, as_json, lambda: require_known_status(status))


@app.command()
def work(
    task_type: TypeName,
    program: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.")],
    concurrency: Annotated[int, typer.Option(min=1, help="Tasks at a time.")] = 4,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when no task is left to do.")] = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a program for each task of a type until Ctrl-C; the program gets the task's content on standard input.

    A task has succeeded if the program exits with 0. Otherwise the attempt has failed, and the task is tried again by
    the rules of its type. What the program prints is passed on.

    Exit codes: 0 no task of the type failed for good meanwhile, 1 some did, 2 there is no such program or type, 3 the
    API does not answer.
    """

    from haulage.tasks import Worker

    async def run_worker_and_count_results(tasks: Tasks, progress: ProgressDisplay) -> CommandOutput:
        before = await tasks.counts(task_type)
        worker = Worker(tasks, task_type, {"": build_program_handler(program)}, concurrency=concurrency)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        running = asyncio.create_task(worker.run())
        if until_empty:
            await _request_worker_stop_when_queue_empty(tasks, task_type, worker, progress, running)
        await running
        after = await tasks.counts(task_type)
        fields = {"success": after.success - before.success, "failed": after.failed - before.failed}
        line = f"{task_type}: {fields['success']:,} succeeded, {fields['failed']:,} failed"
        return CommandOutput(fields, (line,), exit_code=ExitCode.FAILED if fields["failed"] > 0 else ExitCode.DONE)

    run_with_client(run_worker_and_count_results, api, data_dir, as_json, lambda: require_program(program[0]))


async def _request_worker_stop_when_queue_empty(
    tasks: Tasks, task_type: str, worker: Worker, progress: ProgressDisplay, running: asyncio.Task[None]
) -> None:
    while not running.done():
        found = await tasks.counts(task_type)
        ended = found.task_count - found.pending - found.running
        progress.show(task_type, ended, found.task_count, f"{ended:,} of {found.task_count:,} tasks")
        if not found.pending + found.running:
            worker.stop()
            return
        await asyncio.wait({running}, timeout=POLL_SECONDS)


def require_known_status(status: str | None) -> None:
    """Raise CommandFault for a word that is no state of a task."""
    from haulage.tasks import Status

    if status is not None and status.upper() not in Status.__members__:
        known = ", ".join(each.name.lower() for each in Status)
        raise CommandFault(f"{status} is no state of a task. Choose from {known}.")


def require_program(program: str) -> None:
    """Raise CommandFault for what cannot be run: every attempt of every task would fail by it."""
    if shutil.which(program) is None:
        raise CommandFault(
            f"There is no program {program} that can be run, by its path or on the PATH; no task was begun. "
            "Give the program and its arguments after --."
        )


def build_program_handler(program: list[str]) -> Callable[[HeldTask], Awaitable[None]]:
    """Return a handler that runs a program with the task's content on its standard input."""

    async def run_program(task: HeldTask) -> None:
        errors = _LastErrors()
        # A file, not a pipe: should this worker be killed now, the program still has the whole content.
        with tempfile.TemporaryFile() as content:
            content.write(task.task_content.encode())
            content.seek(0)
            read_end, write_end = os.pipe()
            # A file closes its end also where the reader never starts.
            reading = asyncio.ensure_future(errors.pass_on_until_closed(os.fdopen(read_end, "rb", buffering=0)))
            with os.fdopen(write_end, "wb") as standard_error:
                environment = {**os.environ, "TASK_ID": task.task_id}
                child = await _start_in_own_group(program, stdin=content, stderr=standard_error, env=environment)
        is_group_killed = False
        try:
            await child.wait()
            await asyncio.wait({reading}, timeout=LEFT_SECONDS)
        finally:
            if child.returncode is None or not reading.done():
                # What the program has started is in its group, and would go on beside the task's next holder.
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                    is_group_killed = True
                # Only what left the group can keep standard error open now.
                await asyncio.wait({reading}, timeout=KILLED_SECONDS)
                if not reading.done():
                    command.print_warning(
                        f"{program[0]} has ended; what it started in another group still has its standard error, "
                        "which is closed. Have the program wait for it, or close standard error there."
                    )
                    reading.cancel()
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), KILLED_SECONDS)
        if child.returncode:
            raise ProgramFailed(f"{program[0]} exited with {child.returncode}: {errors.text or 'it printed no error'}")
        if is_group_killed:
            raise ProgramFailed(
                f"{program[0]} exited with 0, but what it started still had its standard error {LEFT_SECONDS:g} s "
                "later, and was killed. Have the program wait for it, or close standard error there."
            )

    return run_program


async def _start_in_own_group(program: list[str], **options: Any) -> asyncio.subprocess.Process:
    """Start a program in a group of its own: Ctrl-C stops the worker, which lets its programs end.

    A cancellation meanwhile waits for the start, and kills the program with what it has started.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*program, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            os.killpg((await starting).pid, signal.SIGKILL)
        raise


class _LastErrors:
    """The end of what a program writes to standard error."""

    def __init__(self) -> None:
        self._last = ""

    @property
    def text(self) -> str:
        return self._last.strip()[-ERROR_CHARACTERS:]

    async def pass_on_until_closed(self, read_end: FileIO) -> None:
        """Pass on what the program, or what it has started, writes until all have closed it; then close this end."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), read_end
        )
        with closing(transport):
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            while piece := await reader.read(READ_BYTES):
                text = decoder.decode(piece)
                sys.stderr.write(text)
                self._last = (self._last + text)[-2 * ERROR_CHARACTERS :]


def format_counts_line(task_type: str, found: TaskCountsByState) -> str:
    """Return a line for people."""
    names = ("pending", "running", "success", "failed", "cancelled")
    return f"{task_type}: " + ", ".join(f"{getattr(found, name):,} {name}" for name in names)


def format_task_line(task: Task) -> str:
    """Return a line for people."""
    return f"{task.task_id}: {task.status.name.lower()}, {task.task_content!r}"


def format_task_and_attempt_lines(task: TaskDetails) -> list[str]:
    """Return lines for people: the task, and the attempts that did not end it."""
    attempts = [f"  {wording.format_time(each.end_time)}: {each.outcome}" for each in task.attempts]
    reason = find_last_failure(task.schedule_log)
    return [format_task_line(task), *attempts, *([f"  last failure: {reason}"] if reason else [])]


def find_last_failure(schedule_log: str) -> str:
    """Return the last error in a task's log; empty if there is none, or another client wrote the log its own way."""
    try:
        entries = json.loads(schedule_log)
        return str(entries[-1]["error"])
    except (ValueError, LookupError, TypeError):
        return ""


def strip_fail_reason_prefix(message: str) -> str:
    """Return the reason in the message of a refusal."""
    return message.removeprefix("FAIL_REASON::")


def run_with_client(
    use_client: Callable[[Tasks, ProgressDisplay], Awaitable[CommandOutput]],
    api: str | None,
    data_dir: Path | None,
    as_json: bool,
    check: Callable[[], None] = command.do_nothing,
) -> None:
    from haulage.tasks import Tasks

    async def open_and_work(address: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        async with Tasks(address.url, address.key) as tasks:
            return await use_client(tasks, progress)

    command.run_at_terminal_and_exit(command.run_with_api(data_dir, api, open_and_work, as_json=as_json, check=check))
