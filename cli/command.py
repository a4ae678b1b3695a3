"""What commands share: how they run and exit, the API that they talk to, progress on standard error, errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import getpass
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from cli.progress import ProgressDisplay, show_progress
from cli.wording import replace_routes_by_commands
from dev.embedded.environment import MARKER_VARIABLE, set_environment_of_running_installation
from dev.embedded.run_file import replace_private_file
from domain.faults import ComponentUnreachable, Fault
from haulage.errors import ApiUnreachable, FileDamaged, HaulageError, RequestRefused, WorkFailed
from haulage.projects import create_project
from haulage.transport import NO_HAULAGE_API, RetryingApiTransport
from infra import log

if TYPE_CHECKING:
    from infra.settings import Settings

Api = Annotated[
    str | None, typer.Option("--api", envvar="HAULAGE_API_URL", help="Another machine's API; needs HAULAGE_API_KEY.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of all data; by default .haulage.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Result = TypeVar("Result")
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit log.")]
Who = Annotated[str, typer.Option("--who", help="Your name, for the audit log; by default that of your account.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

KEY_VARIABLE = "HAULAGE_API_KEY"
KEY_FILE = "project-key"
PROJECT_NAME = "local"
CONNECT_TIMEOUT_SECONDS = 3.0
"""A wrong address is reported soon; later requests wait longer, as work survives a restart of the API."""


class ExitCode(IntEnum):
    """How every command that talks to an API exits."""

    DONE = 0
    FAILED = 1
    """The work was done, and ended in a failure or was cancelled elsewhere; a sentence says why."""
    REFUSED = 2
    """The command or the request was wrong, or the key does not fit; nothing was started."""
    API_UNREACHABLE = 3
    """It does not answer, or what answers is no Haulage."""
    FILE_DAMAGED = 4
    """A file arrived damaged; nothing was left on disk."""
    INTERRUPTED = 130
    """Ctrl-C."""


class StoppedEarly(Exception):
    """The user has stopped the command before it was ready."""


class CommandFault(Exception):
    """The command cannot be carried out on this machine; the message says why and what to do."""


class ApiNotFound(CommandFault):
    """No API was named, and none runs on this machine."""


@dataclass(frozen=True)
class ApiAddress:
    """The URL of an API, and a key that it takes."""

    url: str
    key: str


@dataclass(frozen=True)
class CommandOutput:
    """What a command prints: fields for `--json`, or lines for people."""

    fields: Mapping[str, Any]
    lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """For people, on standard error."""
    exit_code: ExitCode = ExitCode.DONE


def do_nothing() -> None:
    """Check nothing: the default of `run`."""


async def run_with_api(
    data_dir: Path | None,
    url: str | None,
    work: Callable[[ApiAddress, ProgressDisplay], Awaitable[CommandOutput]],
    *,
    as_json: bool,
    as_admin: bool = False,
    check: Callable[[], None] = do_nothing,
) -> int:
    """Find the API, do the work with progress, and print its answer or a sentence; return the exit code.

    Args:
        as_admin: Whether the work needs the administrator's key; `HAULAGE_API_KEY` holds it for another machine's API.
        check: Raises CommandFault before the API is asked anything.
    """
    try:
        check()
        address = await find_api_address_and_key(url, data_dir, as_admin=as_admin)
        with show_progress() as progress:
            answer = await _work_unless_api_is_foreign(address, partial(work, address, progress))
    except (HaulageError, CommandFault) as error:
        return print_error_and_get_exit_code(error, as_json=as_json)
    if as_json:
        print_line(json.dumps(answer.fields, ensure_ascii=False, default=str))
        return answer.exit_code
    for line in answer.lines:
        print_line(line)
    for sentence in answer.warnings:
        print_warning(sentence)
    return answer.exit_code


async def _work_unless_api_is_foreign(
    address: ApiAddress, work: Callable[[], Awaitable[CommandOutput]]
) -> CommandOutput:
    """Do the work; where an answer could not be read, find out whether it was one of Haulage.

    Raises:
        RequestRefused: It was not: the address is that of another server. An error of ours is raised as it is.
    """
    try:
        return await work()
    except (LookupError, TypeError, AttributeError, ValueError) as error:  # what reading unknown JSON ends in
        if await _is_haulage(address):
            raise
        raise RequestRefused(
            200,
            NO_HAULAGE_API,
            f"{address.url} does not answer as Haulage does: its answers have other fields. "
            "Give --api, or HAULAGE_API_URL, the address of a Haulage API.",
            "",
        ) from error


async def _is_haulage(address: ApiAddress) -> bool:
    transport = RetryingApiTransport(address.url, address.key, patience_seconds=0.0)
    await transport.open()
    try:
        return (await transport.request_json("GET", "/v1/ping")).get("service") == "haulage"
    except RequestRefused:
        return False
    finally:
        await transport.close()


def configure_logging() -> None:
    """Have a command at a terminal log only warnings."""
    log.configure_json_logging("WARNING")
    # The client library's lines, such as that a pause holds a request up, are for the person at the terminal.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_CommandNamingFormatter("haulage: %(message)s"))
    library = logging.getLogger("haulage")
    library.handlers, library.propagate = [handler], False


class _CommandNamingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return replace_routes_by_commands(super().format(record))


def load_settings_with_data_dir(data_dir: Path | None) -> Settings:
    """Return the settings with the folder that was named, if one was."""
    loaded = load_settings_or_exit()
    return loaded.model_copy(update={"data_dir": (data_dir or loaded.data_dir).absolute()})


def load_settings_or_exit() -> Settings:
    """Return the settings of this process; print a sentence and exit where one of them is wrong."""
    try:
        return load_settings()
    except CommandFault as fault:
        typer.echo(f"haulage: {fault}", err=True)
        raise typer.Exit(ExitCode.REFUSED) from None


def load_settings(*, anew: bool = False) -> Settings:
    """Return the settings of this process, read once or anew; raise CommandFault where one of them is wrong."""
    from infra import settings  # noqa: PLC0415 - a command that is given an API needs none

    if anew:
        settings.load_settings_from_environment.cache_clear()
    try:
        return settings.load_settings_from_environment()
    except Fault as fault:
        raise CommandFault(fault.record.sentence) from None


async def find_api_address_and_key(url: str | None, data_dir: Path | None, *, as_admin: bool = False) -> ApiAddress:
    """Return the API that was named, or the one of the `haulage up` on this machine.

    No setting is read where an API was named: those of this machine, if there are any, are not its own.

    Raises:
        ApiNotFound: There is none, or no key for it.
        CommandFault: A setting is wrong.
    """
    if url is not None:
        if KEY_VARIABLE not in os.environ:
            raise ApiNotFound(f"{url} needs a key. Put your project's key into {KEY_VARIABLE}.")
        return ApiAddress(url, os.environ[KEY_VARIABLE])
    folder = (data_dir or load_settings().data_dir).absolute()
    if not set_environment_of_running_installation(folder) and MARKER_VARIABLE not in os.environ:
        raise ApiNotFound(
            f"No API was named, and no `haulage up` runs in {folder}. Go to the folder where one was started, "
            f"give --api (and {KEY_VARIABLE}), or start one."
        )
    api = load_settings(anew=True).api
    local, admin_key = f"http://{api.host}:{api.port}", api.admin_key.get_secret_value()
    if KEY_VARIABLE in os.environ:
        return ApiAddress(local, os.environ[KEY_VARIABLE])
    return ApiAddress(local, admin_key if as_admin else await load_or_create_project_key(local, admin_key, folder))


async def load_or_create_project_key(url: str, admin_key: str, data_dir: Path) -> str:
    """Return the key of this machine's own project; create the project at the first call."""
    if key := read_project_key(data_dir):
        return key
    key = await create_project(url, admin_key, PROJECT_NAME, patience_seconds=CONNECT_TIMEOUT_SECONDS)
    replace_private_file(data_dir / KEY_FILE, key)
    return key


def read_project_key(data_dir: Path) -> str | None:
    """Return the key of this machine's own project; None if there is no project yet."""
    path = data_dir / KEY_FILE
    # A command that was killed while it wrote the file may have left an empty one.
    return (path.read_text().strip() or None) if path.exists() else None


def print_error_and_get_exit_code(error: Exception, *, as_json: bool) -> int:
    """Print an error; return its exit code."""
    facts: Mapping[str, Any] = {}
    match error:
        case WorkFailed():
            code, facts = ExitCode.FAILED, error.facts
        case RequestRefused():
            code = ExitCode.API_UNREACHABLE if error.code == NO_HAULAGE_API else ExitCode.REFUSED
            facts = {"code": error.code, "request_id": error.request_id}
        case ApiUnreachable():
            code = ExitCode.API_UNREACHABLE
        case FileDamaged():
            code = ExitCode.FILE_DAMAGED
        case _:
            code = ExitCode.REFUSED
    sentence = replace_routes_by_commands(str(error))
    if as_json:
        print_line(json.dumps({"error": sentence, **facts}, ensure_ascii=False, default=str))
    else:
        print_warning(sentence)
    return code


def read_text(path: Path) -> str:
    """Return the text of a file; raise CommandFault where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFault(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, without their ends; raise CommandFault where it cannot be read.

    Only a line feed ends one: JSON may hold U+2028 and the like, at which `splitlines` splits.
    """
    text = read_text(path)
    return text.removesuffix("\n").split("\n") if text else []


def get_user_name() -> str:
    """Return the name of the account; containers may have accounts without one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "haulage"


def print_warning(sentence: str) -> None:
    """Print a sentence for people on standard error."""
    print(f"haulage: {sentence}", file=sys.stderr)  # noqa: T201 (output of a command)


def print_line(line: str) -> None:
    """Print a line of the answer on standard output, unless its reader, such as `head`, has ended."""
    with suppress(BrokenPipeError):
        print(line)  # noqa: T201 (output of a command)


def run_and_exit(
    main: Coroutine[Any, Any, int | None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> NoReturn:
    """Run a command, then exit at once.

    The interpreter may crash on shutdown after the Temporal client was used (sdk-python #300), so this flushes the
    output and skips the shutdown.

    Args:
        loop_factory: Creates the event loop, if not asyncio's default.
    """
    gc.enable()
    # Until now Ctrl-C ended the process at once; the runner handles the signal only where it finds Python's default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(main) or ExitCode.DONE
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except SystemExit:  # Rich raises it where the reader of the output, such as `head`, has ended
        code = ExitCode.FAILED
    except BaseException as error:  # noqa: BLE001 (nothing above would handle it)
        code = ExitCode.FAILED
        if sentence := _describe_failure(error):
            print_warning(sentence)
        else:
            # asyncio and typer would print it, but control does not return to them.
            sys.excepthook(*sys.exc_info())
    flush_and_exit(code)


def run_at_terminal_and_exit(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command that talks to an API: log only warnings, and exit as `run_and_exit` does."""
    configure_logging()
    run_and_exit(main)


def _describe_failure(error: BaseException) -> str | None:
    """Return a sentence about what is no error of this program; None for one that is."""
    match error:
        case Fault():
            return error.record.sentence
        case ComponentUnreachable() | CommandFault() | HaulageError():
            return str(error)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS | errno.EFBIG):
            return f"Nothing more could be written: {error.strerror}, {error.filename or 'a file'}."
    from infra.outages import describe_expected_failure  # noqa: PLC0415 - it loads the clients of all components

    return describe_expected_failure(error)


def flush_and_exit(code: int) -> NoReturn:
    """Write what is buffered, and exit without waiting for anything."""
    log.line_buffer.write_buffered()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):  # its reader has ended
            stream.flush()
    os._exit(code)


async def wait_unless_stopped(starting: Awaitable[Result], stop: asyncio.Event) -> Result:
    """Return the result of what is starting; cancel it once `stop` is set, and wait until it has cleaned up.

    Raises:
        StoppedEarly: `stop` was set first.
    """
    task, stopping = asyncio.ensure_future(starting), asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled() or task.exception():
            raise StoppedEarly
    return task.result()


def create_stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
