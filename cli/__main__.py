# ruff: noqa: PLC0415 - a command must not wait for what serves the others: all of it takes seconds to load
"""Commands, and which function serves each. `haulage COMMAND --help` explains one."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until a command runs: what is loaded here stays, and to look through it took a sixth of a start

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from cli import process
from dev import surroundings
from domain.faults import Fault
from haulage import Columns, DownloadRequest, Encoding, FileType
from infra import log, settings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

DataDir = Annotated[Path | None, typer.Option(help="Folder of everything that outlives a run; by default .haulage.")]
Queues = Annotated[
    list[str] | None, typer.Option(help="Task queue to serve; may be given several times. All by default.")
]


@app.command()
def up(data_dir: DataDir = None) -> None:
    """Start everything on this machine and stay until Ctrl-C: engine, database, object store, API, workers."""
    from cli import staying

    process.run(staying.stay(_quiet(data_dir)))


@app.command()
def demo(data_dir: DataDir = None, rows: Annotated[int, typer.Option(min=1)] = 200_000) -> None:
    """Start everything, export the sample source, compare the file row by row, stop everything."""
    from cli import demo as demonstration

    process.run(demonstration.run(_quiet(data_dir), rows))


@app.command()
def api(
    processes: Annotated[int, typer.Option(min=1, help="API processes on one port; a busy one uses one core.")] = 1,
) -> None:
    """Serve the HTTP API."""
    if processes > 1:
        from cli import serving

        process.run(serving.serve_apis(_serving(), processes))
    from api import app as door

    process.run(door.serve(_serving()), uvloop.new_event_loop)


@app.command()
def worker(
    queues: Queues = None,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes; encoding rows uses one core each.")] = 1,
) -> None:
    """Serve task queues."""
    from cli import serving

    if processes > 1:
        process.run(serving.serve_workers(_serving(), queues or [], processes))
    process.run(serving.serve_worker(_serving(), queues or []))


@app.command(name="migrate")
def migrate_() -> None:
    """Bring the database to this version's revision, and register what workflows are searched by."""
    from services import services
    from workflows import systems

    process.run(services.prepare_installation(_serving(), systems.ensure_schedules))


@app.command()
def doctor(data_dir: DataDir = None) -> None:
    """Check engine, database, bucket, clock, versions and disk, one line each, with the remedy.

    Where a `haulage up` runs and the environment names no database, its parts are the ones that are checked.
    """
    from cli import doctor as examination

    parts = surroundings.chosen(_settings(data_dir).data_dir)
    settings.load.cache_clear()
    process.run(examination.examine(_settings(data_dir), parts))


@app.command()
def export(
    url: Annotated[str, typer.Argument(help="The source: asked as it is, with page and page_size added.")],
    kind: Annotated[FileType, typer.Option("--type", help="What to make.")] = FileType.CSV,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default, here, under the name that the server gave it.")
    ] = None,
    page_size: Annotated[int | None, typer.Option(help="Rows per request to the source.")] = None,
    encoding: Annotated[Encoding | None, typer.Option(help="How the text of a CSV file is written.")] = None,
    columns: Annotated[Columns | None, typer.Option(help="Whether keys may appear after the first page.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="Sent to the source, as `Name: value`; repeatable.")] = None,
    guard: Annotated[
        bool, typer.Option("--guard/--no-guard", help="Whether texts that look like formulas are guarded.")
    ] = True,
    template: Annotated[
        Path | None, typer.Option(help="For Excel: a JSON file with the tree of column heads and row heads.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="For Excel: the line above the table.")] = None,
    summary: Annotated[str | None, typer.Option(help="For Excel: the text below the title; may hold HTML.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="For Excel: the zone of its dates, like Asia/Shanghai.")] = None,
    api: Annotated[
        str | None, typer.Option(envvar="HAULAGE_API_URL", help="Another machine's API; needs HAULAGE_API_KEY.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")] = False,
) -> None:
    """Export a source into a file on this machine, by a running `haulage up` or by any Haulage API.

    An Excel export too large for one book is a zip of several; then the file is named so.

    Ctrl-C cancels the export. It answers 0 when the file is there and whole, 1 when the export failed, 2 when the
    request was wrong, 3 when the API does not answer, 4 when the file arrived damaged, 130 after Ctrl-C.
    """
    from cli import export as exporting

    request = DownloadRequest(
        source_url=url,
        type=kind,
        page_size=page_size,
        encoding=encoding,
        columns=columns,
        headers=exporting.headers(header or []),
        formula_guard=None if guard else False,
        file_name=out and out.name,
        template=exporting.template(template),
        title=title,
        summary=summary,
        time_zone=time_zone,
    )
    process.run(exporting.run(api, _quiet(data_dir).data_dir, request, out, as_json))


@app.command()
def ask(
    path: Annotated[str, typer.Argument(help="What to ask for, with its query, like /v1/transfers/jobs?limit=5.")],
    method: Annotated[str, typer.Option(help="GET reads; POST, PUT and DELETE do what the reference says.")] = "GET",
    body: Annotated[str | None, typer.Option(help="JSON to send.")] = None,
    api: Annotated[
        str | None, typer.Option(envvar="HAULAGE_API_URL", help="Another machine's API; needs HAULAGE_API_KEY.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Send one request to the API of a running `haulage up`, or of any Haulage, and print the answer.

    It answers 0 when the API did it, 2 when it said no, 3 when it does not answer.
    """
    from cli import ask as asking

    process.run(asking.run(api, _quiet(data_dir).data_dir, method.upper(), path, body))


def _quiet(data_dir: Path | None) -> settings.Settings:
    """For people at a terminal: the parts log to files, so only what goes wrong is shown."""
    log.configure("WARNING")
    return _settings(data_dir)


def _serving() -> settings.Settings:
    loaded = _loaded()
    log.configure(loaded.log_level)
    return loaded


def _settings(data_dir: Path | None) -> settings.Settings:
    loaded = _loaded()
    return loaded.model_copy(update={"data_dir": (data_dir or loaded.data_dir).absolute()})


def _loaded() -> settings.Settings:
    try:
        return settings.load()
    except Fault as fault:
        typer.echo(f"haulage: {fault.record.sentence}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
