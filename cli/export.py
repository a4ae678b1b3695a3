"""`haulage export`: one download from a terminal, from the request to the checked file.

Its exit codes are those of all commands (`cli/command.py`); Ctrl-C cancels the export.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from cli.command import CONNECT_TIMEOUT_SECONDS, ApiAddress, CommandFault, CommandOutput, print_warning
from cli.progress import ProgressDisplay
from haulage import Client, Download, DownloadRequest, FileType, HaulageError, SavedFile, State
from haulage.models import TYPES_BY_EXTENSION

CANCEL_TIMEOUT_SECONDS = 5.0
OTHER_FORMATS = frozenset((".json", ".jsonl", ".ods", ".pdf", ".tsv", ".xls", ".xlsb", ".xlsm", ".xml", ".docx"))


class FileNotWritable(CommandFault):
    """The file cannot be written."""


def build_export_command(
    request: DownloadRequest, out: Path | None
) -> Callable[[ApiAddress, ProgressDisplay], Awaitable[CommandOutput]]:
    """Return what exports to a file and describes the file."""

    async def export_and_describe_file(address: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        started = time.monotonic()
        saved, download = await _export_and_save_file(address, request, out, progress)
        return _describe_saved_file(saved, download, time.monotonic() - started)

    return export_and_describe_file


def choose_file_type(given: FileType | None, out: Path | None) -> FileType:
    """Return the type that was given, else that of the file's name, else CSV.

    Raises:
        BadParameter: The name is that of a format that no export has.
    """
    if given is not None or out is None:
        return given or FileType.CSV
    if (suffix := out.suffix.lower()) in OTHER_FORMATS:
        raise typer.BadParameter(
            f"No export is a {suffix} file. Name it {', '.join(TYPES_BY_EXTENSION)}, or give --type.",
            param_hint="--out",
        )
    return FileType.from_file_name(out.name) or FileType.CSV


def parse_headers(lines: Sequence[str]) -> dict[str, str] | None:
    """Parse headers for the source, each written `Name: value`."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not name.strip() or not colon:
            raise typer.BadParameter(f"{line!r} is no header. Write it as `Name: value`.", param_hint="--header")
        if name.strip().lower() in map(str.lower, headers):
            raise typer.BadParameter(f"{name.strip()} is given twice. Give it once.", param_hint="--header")
        headers[name.strip()] = value.strip()
    return headers or None


def load_workbook_fields(file_type: FileType, template: Path | None, **texts: str | None) -> dict[str, Any]:
    """Return the fields of a request that only workbooks show, with the template's content.

    Raises:
        BadParameter: One is given for another file, which would not show it; or the template cannot be read.
    """
    for name, value in {"template": template, **texts}.items():
        if value is not None and file_type is not FileType.EXCEL:
            raise typer.BadParameter(
                "This is for workbooks only. Add --type excel, or leave it out.",
                param_hint=f"--{name.replace('_', '-')}",
            )
    return {"template": load_template(template), **texts}


def load_template(path: Path | None) -> Any:
    """Load a template; the API validates it."""
    if path is None:
        return None
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"There is no file {path}.", param_hint="--template") from None
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}.", param_hint="--template") from None
    except ValueError as error:
        raise typer.BadParameter(f"{path} holds no JSON: {error}.", param_hint="--template") from None


async def _export_and_save_file(
    address: ApiAddress, request: DownloadRequest, out: Path | None, progress: ProgressDisplay
) -> tuple[SavedFile, Download]:
    async with Client(address.url, address.key, patience_seconds=CONNECT_TIMEOUT_SECONDS) as first:
        try:
            download = await first.create(request)
        except asyncio.CancelledError:
            print_warning(
                "Stopped while the server was asked; `haulage downloads list` shows whether it started a download."
            )
            raise
    async with Client(address.url, address.key) as client:
        try:
            async for download in client.watch(download.task_id):  # noqa: B020 (each replaces the one before)
                show_download(progress, download)
            return await _save_file(client, download, _get_out_or_server_file_name(download, out), progress), download
        except asyncio.CancelledError:
            print_warning(await _cancel_on_server(client, download))
            raise


async def _save_file(client: Client, download: Download, path: Path, progress: ProgressDisplay) -> SavedFile:
    try:
        return await client.save(download, path, progress=build_byte_display(progress))
    except OSError as error:
        raise FileNotWritable(
            f"{path} could not be written: {error.strerror or error}. "
            f"Free some space; GET /v1/downloads/{download.task_id}/file still has the file."
        ) from error


def _get_out_or_server_file_name(download: Download, out: Path | None) -> Path:
    """Return the path of the file; an archive never gets the extension of a workbook."""
    name = Path(download.file_name)
    if out is None:
        return name
    return out.with_suffix(name.suffix) if name.suffix == ".zip" else out


async def _cancel_on_server(client: Client, download: Download) -> str:
    """Cancel the download on the server, waiting a few seconds at most; return a sentence about the outcome."""
    if download.state.final:
        return f"Stopped. The download {download.task_id} is over on the server ({download.state}); no file is here."
    with suppress(HaulageError, TimeoutError):
        async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
            await client.cancel(download.task_id)
            return f"The download {download.task_id} was cancelled; nothing of it is kept."
    return f"Stopped, but the server did not answer: the download {download.task_id} may go on there."


def require_writable_file_or_current_folder(out: Path | None) -> None:
    """Raise FileNotWritable before the server does any work; without a name, the file goes to the current folder."""
    folder = Path() if out is None else out.parent
    if not folder.is_dir():
        raise FileNotWritable(f"There is no folder {folder} for the file. Create it, or give another --out.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileNotWritable(f"The folder {folder.absolute()} cannot be written. Give another --out.")
    if out is not None and out.is_dir():
        raise FileNotWritable(f"{out} is a folder. Give --out the name of a file.")


def show_download(progress: ProgressDisplay, download: Download) -> None:
    """Show the phase and the rows of a download; how it failed is said by its error."""
    if download.state.final and download.state is not State.SUCCEEDED:
        return
    rows = f"{download.rows:,} rows" if download.total is None else f"{download.rows:,} of {download.total:,} rows"
    trouble = "" if download.trouble is None else f": {download.trouble}"
    progress.show("export", download.rows, download.total, f"{download.phase}, {rows}{trouble}")


def build_byte_display(progress: ProgressDisplay) -> Callable[[int, int], None]:
    """Return what shows the bytes of a file that have arrived."""

    def show_megabytes(done: int, size: int) -> None:
        progress.show("file", done, size, f"{done / 1e6:,.1f} of {size / 1e6:,.1f} MB")

    return show_megabytes


def _describe_saved_file(saved: SavedFile, download: Download, seconds: float) -> CommandOutput:
    fields = {
        "task_id": download.task_id,
        "state": download.state,
        "file": str(saved.path),
        "rows": saved.rows,
        "bytes": saved.bytes,
        "files": download.files,
        "left_out": download.left_out,
        "warnings": download.warnings,
        "seconds": round(seconds, 3),
    }
    line = f"{saved.path}: {saved.rows:,} rows, {saved.bytes:,} bytes, {seconds:.1f} s"
    left_out = f"The template does not show the keys {', '.join(download.left_out)}."
    return CommandOutput(fields, (line,), (*download.warnings, *([left_out] if download.left_out else [])))
