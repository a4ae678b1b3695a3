# ruff: noqa: PLC0415 - a command loads only what it needs: loading everything takes seconds
"""The commands. `haulage COMMAND --help` explains one."""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys

if __name__ == "__main__":
    gc.disable()  # until a command runs: collecting what is being loaded took a sixth of the start

    def exit_on_ctrl_c_while_loading(*_: object) -> None:
        """End as a command does on Ctrl-C; nothing has been started yet."""
        os.write(2, b"haulage: Stopped before anything was started.\n")
        os._exit(130)

    signal.signal(signal.SIGINT, exit_on_ctrl_c_while_loading)

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli import addresses, command, downloads, installation, progress, steering, transfers, wording
from cli.command import Api, AsJson, DataDir
from dev.embedded.environment import load_environment_and_describe
from domain import VERSION
from domain.faults import Fault
from haulage import DownloadRequest, Encoding, FileType, LateColumnPolicy
from infra import log

if TYPE_CHECKING:
    from infra.settings import Settings

START, SYSTEMS, OPERATE = PANELS = ("Start and ask", "Systems", "Operate")
"""What the commands are for, in the order in which the help lists them."""


class CommandsByPanel(TyperGroup):
    """The commands by panel, those of each as they were registered; what has no panel comes last."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict(sorted(self.commands.items(), key=_find_place_of_panel))


def _find_place_of_panel(command_by_name: tuple[str, object]) -> int:
    panel = getattr(command_by_name[1], "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


app = typer.Typer(cls=CommandsByPanel, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(downloads.app, name="downloads", rich_help_panel=SYSTEMS)
app.add_typer(transfers.app, name="transfers", rich_help_panel=SYSTEMS)
app.add_typer(
    steering.order_app,
    name="orders",
    short_help="Set up platforms, fetch their orders, and read again what failed.",
    rich_help_panel=SYSTEMS,
)
app.add_typer(addresses.app, name="addresses", rich_help_panel=SYSTEMS)
app.add_typer(steering.app, name="tasks", rich_help_panel=SYSTEMS)
app.add_typer(installation.systems_app, name="systems", rich_help_panel=OPERATE)

Queues = Annotated[
    list[str] | None, typer.Option(help="Task queue to serve; may be given several times. All by default.")
]


def _print_version_and_exit(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"haulage {VERSION}")
        raise typer.Exit


@app.callback()
def accept_options_of_all_commands(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version_and_exit, help="Print the version.")
    ] = False,
) -> None:
    """Durable exports, transfers, orders, addresses and tasks, on Temporal."""


@app.command(rich_help_panel=START)
def up(
    data_dir: DataDir = None,
    stand_ins: Annotated[
        bool, typer.Option("--stand-ins/--no-stand-ins", help="Whether to run stand-ins for outside systems.")
    ] = True,
) -> None:
    """Start everything on this machine and run until Ctrl-C: engine, database, object store, API, workers.

    With them run stand-ins for what each system works with: a source, a GSE, a file repository, order platforms,
    Pub/Sub and address modules.
    """
    from dev.embedded import preloading

    loaded = _load_settings_for_terminal(data_dir)
    forked = preloading.try_fork_preloader(loaded.data_dir)
    from cli import up as starting

    command.run_and_exit(starting.run_installation_until_stopped(loaded, forked, stand_ins=stand_ins))


@app.command(rich_help_panel=START)
def demo(
    systems: Annotated[list[str] | None, typer.Argument(help="Systems to show; all by default.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Show each system at real work against stand-ins, check the outcome, and stop everything.

    Files, pictures and the data of the demo are left in the folder `demo` of the data; a running `haulage up` is not
    disturbed. Exit codes: 0 everything is as it must be, 1 a check failed, 2 there is no such system.
    """
    from demo import running

    try:
        running.choose_parts(systems or [])
    except Fault as fault:
        raise typer.BadParameter(fault.record.sentence) from None
    command.run_and_exit(running.run(_load_settings_for_terminal(data_dir), systems or [], progress.show_progress))


@app.command(rich_help_panel=OPERATE)
def api(
    processes: Annotated[int, typer.Option(min=1, help="API processes on one port; a busy one uses one core.")] = 1,
) -> None:
    """Serve the HTTP API."""
    if processes > 1:
        from cli import serving

        command.run_and_exit(serving.serve_apis(_load_settings_for_server(), processes))
    from api import app as api_app

    command.run_and_exit(api_app.serve(_load_settings_for_server()), uvloop.new_event_loop)


@app.command(rich_help_panel=OPERATE)
def worker(
    queues: Queues = None,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes; encoding rows uses one core each.")] = 1,
) -> None:
    """Serve task queues."""
    from cli import serving

    if processes > 1:
        command.run_and_exit(serving.serve_workers(_load_settings_for_server(), queues or [], processes))
    command.run_and_exit(serving.serve_worker(_load_settings_for_server(), queues or []))


@app.command(name="migrate", rich_help_panel=OPERATE)
def migrate_() -> None:
    """Migrate the database to this version, and register the search attributes of workflows."""
    from services import services
    from workflows import systems

    command.run_and_exit(services.prepare_installation(_load_settings_for_server(), systems.create_or_update_schedules))


@app.command(rich_help_panel=OPERATE)
def doctor(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")] = False,
) -> None:
    """Check engine, workers, database, bucket, clock, versions and disk, one line each, with the remedy.

    If a `haulage up` runs and the environment names no database, its components are checked.
    """
    from cli import doctor as checks
    from infra import settings

    log.configure_json_logging("ERROR")  # what a check finds says more than the warnings of the client that it calls
    components = load_environment_and_describe(command.load_settings_with_data_dir(data_dir).data_dir)
    settings.load_settings_from_environment.cache_clear()

    async def run_checks_and_exit() -> None:
        # At once: a check that hangs would keep the process for minutes.
        command.flush_and_exit(
            await checks.run_and_print_checks(
                command.load_settings_with_data_dir(data_dir), components, as_json=as_json
            )
        )

    command.run_and_exit(run_checks_and_exit())


for work in (
    installation.backup,
    installation.restore,
    installation.reconcile,
    installation.rotate,
    installation.reseal,
):
    app.command(rich_help_panel=OPERATE)(work)


@app.command(rich_help_panel=START)
def export(
    url: Annotated[str, typer.Argument(help="URL of the source; page and page_size are added.")],
    kind: Annotated[
        FileType | None, typer.Option("--type", help="Type of the file; by default by the name of --out, else CSV.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default the server's file name in this folder.")
    ] = None,
    page_size: Annotated[int | None, typer.Option(help="Rows per request to the source.")] = None,
    encoding: Annotated[Encoding | None, typer.Option(help="Encoding of a CSV file.")] = None,
    columns: Annotated[
        LateColumnPolicy | None, typer.Option(help="Whether columns may appear after the first page.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Header for the source, as `Name: value`; repeatable.")
    ] = None,
    guard: Annotated[
        bool, typer.Option("--guard/--no-guard", help="Whether texts that look like formulas are escaped.")
    ] = True,
    template: Annotated[
        Path | None, typer.Option(help="For Excel: a JSON file with the tree of column heads and row heads.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="For Excel: the line above the table.")] = None,
    summary: Annotated[str | None, typer.Option(help="For Excel: the text below the title; may hold HTML.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="For Excel: the zone of its dates, like Asia/Shanghai.")] = None,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Export a source into a file on this machine, by a running `haulage up` or by any Haulage API.

    An Excel export too large for one workbook becomes a zip of several.

    Ctrl-C cancels the export. Exit codes: 0 the file is complete, 1 the export failed, 2 the request was wrong, 3 the
    API does not answer, 4 the file arrived damaged, 130 after Ctrl-C.
    """
    from cli import export as exporting

    file_type = exporting.choose_file_type(kind, out)
    request = DownloadRequest(
        source_url=url,
        type=file_type,
        page_size=page_size,
        encoding=encoding,
        columns=columns,
        headers=exporting.parse_headers(header or []),
        formula_guard=None if guard else False,
        file_name=out and out.name,
        **exporting.load_workbook_fields(file_type, template, title=title, summary=summary, time_zone=time_zone),
    )
    work = exporting.build_export_command(request, out)
    check = partial(exporting.require_writable_file_or_current_folder, out)
    command.run_at_terminal_and_exit(command.run_with_api(data_dir, api, work, as_json=as_json, check=check))


@app.command(rich_help_panel=START)
def ask(
    path: Annotated[str, typer.Argument(help="Path and query, like /v1/transfers/jobs?limit=5.")],
    method: Annotated[str, typer.Option(help="GET, POST, PUT or DELETE.")] = "GET",
    body: Annotated[str | None, typer.Option(help="JSON to send.")] = None,
    project: Annotated[str | None, typer.Option(help="Id of the project that the request is about.")] = None,
    api: Api = None,
    data_dir: DataDir = None,
) -> None:
    """Send one request to the API of a running `haulage up`, or to any Haulage API, and print the response.

    It is sent with the admin key of this machine's `haulage up`. A route that works on one project is asked for
    --project; without it, and without --api, for this machine's own project.

    Of a redirect, such as that to a file, the address is printed that it leads to.

    Exit codes: 0 the request succeeded, 2 the API refused it, 3 the API does not answer.
    """
    from cli import asking

    command.run_at_terminal_and_exit(asking.send_request(data_dir, api, method.upper(), path, body, project))


def _load_settings_for_terminal(data_dir: Path | None) -> Settings:
    """Load the settings of a command at a terminal, which logs only warnings; components log to files."""
    log.configure_json_logging("WARNING")
    return command.load_settings_with_data_dir(data_dir)


def _load_settings_for_server() -> Settings:
    loaded = command.load_settings_or_exit()
    log.configure_json_logging(loaded.log_level)
    return loaded


def main() -> None:
    """Run the command of the arguments; a usage error is one sentence and the exit code 2."""
    try:
        code = _select_named_command(sys.argv[1:])(prog_name="haulage", standalone_mode=False)
    except typer.Abort:
        code = 130
    except TyperException as error:
        if error.format_message().strip():  # where a command is missing, the help was printed instead
            command.print_warning(wording.describe_usage_error(error))
        code = error.exit_code
    sys.exit(code)


def _select_named_command(arguments: Sequence[str]) -> typer.Typer:
    """Return an app with only the command or group that the arguments begin with; all of them if with none.

    To build the others takes 50 ms and 6 MB in each process of an installation.
    """
    named = copy.copy(app)
    named.registered_commands = [
        each
        for each in app.registered_commands
        if (each.name or getattr(each.callback, "__name__", "")) in arguments[:1]
    ]
    named.registered_groups = [each for each in app.registered_groups if each.name in arguments[:1]]
    return named if named.registered_commands or named.registered_groups else app


if __name__ == "__main__":
    main()
