"""`haulage export`: one download from a terminal, from the request to the checked file.

Exit codes:

- 0: the file is there, whole
- 1: the export failed or was cancelled elsewhere; a sentence says why
- 2: the command or the request was wrong, or the key does not fit; nothing was started
- 3: the API, or the store with the file, does not answer
- 4: the file arrived damaged; nothing was left on disk
- 130: Ctrl-C; the export was cancelled
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from cli.progress import ProgressDisplay, show_progress
from dev.embedded import data_folder
from haulage import (
    Client,
    Download,
    DownloadFailed,
    DownloadRequest,
    FileDamaged,
    HaulageError,
    Refused,
    Saved,
    Unreachable,
)
from haulage.transport import Transport
from infra import settings

KEY_VARIABLE = "HAULAGE_API_KEY"
KEY_FILE = "export-key"
PROJECT_NAME = "haulage export"
# A wrong address is reported soon; later requests wait longer, as an export survives a restart of the API.
CONNECT_TIMEOUT_SECONDS = 3.0
CANCEL_TIMEOUT_SECONDS = 5.0


class ApiNotFound(Exception):
    """No API was named, and none runs on this machine."""


class FileNotWritable(Exception):
    """The file cannot be written."""


@dataclass(frozen=True)
class ApiAddress:
    """The URL of an API, and a project's key."""

    url: str
    key: str


async def run(url: str | None, data_dir: Path, request: DownloadRequest, out: Path | None, as_json: bool) -> int:
    """Export to a file and print the result; return the exit code."""
    started = time.monotonic()
    try:
        _check_writable(out)
        address = await _find_api(url, data_dir)
        with show_progress() as progress:
            saved, download = await _export(address, request, out, progress)
    except (HaulageError, ApiNotFound, FileNotWritable) as error:
        return _report_error(error, as_json)
    _report(saved, download, time.monotonic() - started, as_json)
    return 0


def parse_headers(lines: Sequence[str]) -> dict[str, str] | None:
    """Parse headers for the source, each written `Name: value`."""
    pairs = [line.partition(":") for line in lines]
    for (name, colon, _), line in zip(pairs, lines, strict=True):
        if not name.strip() or not colon:
            raise typer.BadParameter(f"{line!r} is no header. Write it as `Name: value`.", param_hint="--header")
    return {name.strip(): value.strip() for name, _, value in pairs} or None


def load_template(path: Path | None) -> Any:
    """Load a template; the API validates it."""
    if path is None:
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} holds no JSON: {error}.", param_hint="--template") from None


async def create_key(url: str, admin_key: str, project_name: str) -> str:
    """Create a project for the exports of this machine; return its key."""
    transport = Transport(url, admin_key, CONNECT_TIMEOUT_SECONDS)
    await transport.open()
    try:
        made = await transport.json("POST", "/v1/projects", json={"name": project_name})
    finally:
        await transport.close()
    return str(made["key"]["api_key"])


async def _export(
    address: ApiAddress, request: DownloadRequest, out: Path | None, progress: ProgressDisplay
) -> tuple[Saved, Download]:
    async with Client(address.url, address.key, patience_seconds=CONNECT_TIMEOUT_SECONDS) as first:
        try:
            download = await first.create(request)
        except asyncio.CancelledError:
            _warn("Stopped while the server was asked; it may have started a download, which GET /v1/downloads lists.")
            raise
    async with Client(address.url, address.key) as client:
        try:
            async for download in client.watch(download.task_id):  # noqa: B020 (each replaces the one before)
                progress.show_download(download)
            return await _save(client, download, _choose_path(download, out), progress), download
        except asyncio.CancelledError:
            _warn(await _cancel(client, download))
            raise


async def _save(client: Client, download: Download, path: Path, progress: ProgressDisplay) -> Saved:
    try:
        return await client.save(download, path, progress=progress.show_bytes)
    except OSError as error:
        raise FileNotWritable(
            f"{path} could not be written: {error.strerror or error}. "
            f"Free some space; GET /v1/downloads/{download.task_id}/file still has the file."
        ) from error


def _choose_path(download: Download, out: Path | None) -> Path:
    """Return the path of the file; an archive never gets the extension of a workbook."""
    name = Path(download.file_name)
    if out is None:
        return name
    return out.with_suffix(name.suffix) if name.suffix == ".zip" else out


async def _cancel(client: Client, download: Download) -> str:
    """Cancel the download on the server, waiting a few seconds at most; return a sentence about the outcome."""
    if download.state.final:
        return f"Stopped. The download {download.task_id} is over on the server ({download.state}); no file is here."
    with suppress(HaulageError, TimeoutError):
        async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
            await client.cancel(download.task_id)
            return f"The download {download.task_id} was cancelled; nothing of it is kept."
    return f"Stopped, but the server did not answer: the download {download.task_id} may go on there."


def _check_writable(out: Path | None) -> None:
    """Raise FileNotWritable before the server does any work."""
    folder = Path() if out is None else out.parent
    if not folder.is_dir():
        raise FileNotWritable(f"There is no folder {folder} for the file. Create it, or give another --out.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileNotWritable(f"The folder {folder.absolute()} cannot be written. Give another --out.")
    if out is not None and out.is_dir():
        raise FileNotWritable(f"{out} is a folder. Give --out the name of a file.")


async def _find_api(url: str | None, data_dir: Path) -> ApiAddress:
    """Return the API that was named, or the one of the `haulage up` on this machine."""
    if url is not None:
        if KEY_VARIABLE not in os.environ:
            raise ApiNotFound(f"{url} needs a key. Put your project's key into {KEY_VARIABLE}.")
        return ApiAddress(url, os.environ[KEY_VARIABLE])
    if not data_folder.load_environment(data_dir) and data_folder.MARKER_VARIABLE not in os.environ:
        raise ApiNotFound(
            f"No API was named, and no `haulage up` runs in {data_dir}. Give --api (and {KEY_VARIABLE}), or start one."
        )
    settings.load.cache_clear()
    api = settings.load().api
    local = f"http://{api.host}:{api.port}"
    key_path = data_dir / KEY_FILE
    key = os.environ.get(KEY_VARIABLE) or _read_key(key_path)
    if key is None:
        key = await create_key(local, api.admin_key.get_secret_value(), PROJECT_NAME)
        _write_key(key_path, key)
    return ApiAddress(local, key)


def _read_key(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _write_key(path: Path, key: str) -> None:
    path.touch(mode=0o600)
    path.write_text(key)


def _report(saved: Saved, download: Download, seconds: float, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
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
        )
    else:
        _say(f"{saved.path}: {saved.rows:,} rows, {saved.bytes:,} bytes, {seconds:.1f} s")
        for warning in download.warnings:
            _warn(warning)
        if download.left_out:
            _warn(f"The template does not show the keys {', '.join(download.left_out)}.")


def _report_error(error: Exception, as_json: bool) -> int:
    """Print an error; return its exit code."""
    failed: dict[str, Any] = {"error": str(error)}
    match error:
        case DownloadFailed(download=download):
            code = 1
            failed |= {"task_id": download.task_id, "state": download.state}
            failed |= {"code": download.fault.code} if download.fault else {}
        case Refused():
            code = 2
            failed |= {"code": error.code, "request_id": error.request_id}
        case Unreachable():
            code = 3
        case FileDamaged():
            code = 4
        case _:
            code = 2
    if as_json:
        _print_json(failed)
    else:
        _warn(str(error))
    return code


def _warn(sentence: str) -> None:
    print(f"haulage: {sentence}", file=sys.stderr)  # noqa: T201 (output of a command)


def _print_json(answer: dict[str, Any]) -> None:
    _say(json.dumps(answer, ensure_ascii=False))


def _say(line: str) -> None:
    print(line)  # noqa: T201 (output of a command)
