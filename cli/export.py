"""`haulage export`: one download from a terminal, from the request to the checked file.

What the command answers with:

- 0: the file is there, whole
- 1: the export failed, or was cancelled by somebody else; the sentence says why
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

from cli.export_progress import Show, shown
from dev import surroundings
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
# A wrong address should be told at once; a running export outlives a restart of the API.
FIRST_PATIENCE_SECONDS = 3.0
CANCEL_PATIENCE_SECONDS = 5.0


class NowhereToGo(Exception):
    """Neither an API was named, nor does one run here."""


class NowhereToWrite(Exception):
    """The file could not be written, however the export went."""


@dataclass(frozen=True)
class Place:
    """An API and a project's key to it."""

    url: str
    key: str


async def run(url: str | None, data_dir: Path, request: DownloadRequest, out: Path | None, as_json: bool) -> int:
    """Export, and say how it went."""
    began = time.monotonic()
    try:
        _check_writable(out)
        place = await _place(url, data_dir)
        with shown() as show:
            saved, download = await _export(place, request, out, show)
    except (HaulageError, NowhereToGo, NowhereToWrite) as error:
        return _complain(error, as_json)
    _report(saved, download, time.monotonic() - began, as_json)
    return 0


def headers(lines: Sequence[str]) -> dict[str, str] | None:
    """Headers for the source, each written `Name: value`."""
    pairs = [line.partition(":") for line in lines]
    for (name, colon, _), line in zip(pairs, lines, strict=True):
        if not name.strip() or not colon:
            raise typer.BadParameter(f"{line!r} is no header. Write it as `Name: value`.", param_hint="--header")
    return {name.strip(): value.strip() for name, _, value in pairs} or None


def template(path: Path | None) -> Any:
    """A template from its file; the API says what is wrong with it."""
    if path is None:
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} holds no JSON: {error}.", param_hint="--template") from None


async def new_key(url: str, admin_key: str, project_name: str) -> str:
    """The key of a project made for this machine's own exports."""
    transport = Transport(url, admin_key, FIRST_PATIENCE_SECONDS)
    await transport.open()
    try:
        made = await transport.json("POST", "/v1/projects", json={"name": project_name})
    finally:
        await transport.close()
    return str(made["key"]["api_key"])


async def _export(place: Place, request: DownloadRequest, out: Path | None, show: Show) -> tuple[Saved, Download]:
    async with Client(place.url, place.key, patience_seconds=FIRST_PATIENCE_SECONDS) as first:
        try:
            download = await first.create(request)
        except asyncio.CancelledError:
            _warn("Stopped while the server was asked; it may have started a download, which GET /v1/downloads lists.")
            raise
    async with Client(place.url, place.key) as client:
        try:
            async for download in client.watch(download.task_id):  # noqa: B020 (each is the last word so far)
                show.download(download)
            return await _saved(client, download, _target(download, out), show), download
        except asyncio.CancelledError:
            _warn(await _cancelled(client, download))
            raise


async def _saved(client: Client, download: Download, path: Path, show: Show) -> Saved:
    try:
        return await client.save(download, path, progress=show.bytes)
    except OSError as error:
        raise NowhereToWrite(
            f"{path} could not be written: {error.strerror or error}. "
            f"Make room; GET /v1/downloads/{download.task_id}/file still has the file."
        ) from error


def _target(download: Download, out: Path | None) -> Path:
    """Where the file goes; a zip is not put down under the name of a book."""
    name = Path(download.file_name)
    if out is None:
        return name
    return out.with_suffix(name.suffix) if name.suffix == ".zip" else out


async def _cancelled(client: Client, download: Download) -> str:
    """Ctrl-C asks the server to stop, too; it may be down, and nobody wants to wait for that. What became of it."""
    if download.state.final:
        return f"Stopped. The download {download.task_id} is over on the server ({download.state}); no file is here."
    with suppress(HaulageError, TimeoutError):
        async with asyncio.timeout(CANCEL_PATIENCE_SECONDS):
            await client.cancel(download.task_id)
            return f"The download {download.task_id} was cancelled; nothing of it stays."
    return f"Stopped, but the server could not be told: the download {download.task_id} may go on there."


def _check_writable(out: Path | None) -> None:
    """Before the server does any work for a file that could not be put down."""
    folder = Path() if out is None else out.parent
    if not folder.is_dir():
        raise NowhereToWrite(f"There is no folder {folder} for the file. Make it, or give another --out.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NowhereToWrite(f"The folder {folder.absolute()} cannot be written. Give another --out.")
    if out is not None and out.is_dir():
        raise NowhereToWrite(f"{out} is a folder. Give --out the name of a file.")


async def _place(url: str | None, data_dir: Path) -> Place:
    """The API that was named, or the one that runs on this machine."""
    if url is not None:
        if KEY_VARIABLE not in os.environ:
            raise NowhereToGo(f"{url} needs a key. Put your project's key into {KEY_VARIABLE}.")
        return Place(url, os.environ[KEY_VARIABLE])
    if not surroundings.adopt(data_dir) and surroundings.TELLING not in os.environ:
        raise NowhereToGo(
            f"No API was named, and no `haulage up` runs in {data_dir}. Give --api (and {KEY_VARIABLE}), or start one."
        )
    settings.load.cache_clear()
    api = settings.load().api
    local = f"http://{api.host}:{api.port}"
    kept = data_dir / KEY_FILE
    key = os.environ.get(KEY_VARIABLE) or _read(kept)
    if key is None:
        key = await new_key(local, api.admin_key.get_secret_value(), PROJECT_NAME)
        _keep(kept, key)
    return Place(local, key)


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _keep(path: Path, key: str) -> None:
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


def _complain(error: Exception, as_json: bool) -> int:
    """Say what went wrong, and which number that is."""
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
    print(f"haulage: {sentence}", file=sys.stderr)  # noqa: T201 (a command speaks)


def _print_json(answer: dict[str, Any]) -> None:
    _say(json.dumps(answer, ensure_ascii=False))


def _say(line: str) -> None:
    print(line)  # noqa: T201 (a command speaks)
