"""`haulage ask`: one request to the API, and its response as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli import command, wording
from cli.command import ApiAddress, CommandFault, CommandOutput
from cli.progress import ProgressDisplay
from haulage.errors import RequestRefused
from haulage.transport import ApiResponse, RetryingApiTransport

PROJECT_HEADER = "Haulage-Project"
PROJECT_NEEDED = "project_key_needed"
"""The code with which a route that works on one project refuses the admin key, before it does anything."""


async def send_request(
    data_dir: Path | None, url: str | None, method: str, path: str, body: str | None, project: str | None = None
) -> int:
    """Send one request and print its response, with the admin key of this machine by default; return the exit code.

    A route that works on one project is asked for the named one, else for this machine's own if it has one.
    """

    def require_usable_path_and_project() -> None:
        if not path.startswith("/"):
            raise CommandFault(f"{path} is no path. One begins with /, like /v1/transfers/jobs?limit=5.")
        if project is not None and not project.isprintable():
            raise CommandFault(f"{project!r} is no id of a project. `haulage ask /v1/projects` lists them.")

    async def send_and_print_response(address: ApiAddress, _: ProgressDisplay) -> CommandOutput:
        options = _build_options(body, project)
        try:
            response = await _send(address, method, path, options)
        except RequestRefused as refused:
            key = _read_own_project_key(data_dir) if url is None and refused.code == PROJECT_NEEDED else None
            if key is None:
                raise _name_project_option(refused) from None
            response = await _send(ApiAddress(address.url, key), method, path, options)
        return CommandOutput({}, tuple(_describe_response(response)))

    return await command.run_with_api(
        data_dir, url, send_and_print_response, as_json=False, as_admin=True, check=require_usable_path_and_project
    )


async def _send(address: ApiAddress, method: str, path: str, options: dict[str, Any]) -> ApiResponse:
    # A request that changes something is not repeated: the first one may have arrived.
    patience_seconds = command.CONNECT_TIMEOUT_SECONDS if method == "GET" else 0.0
    transport = RetryingApiTransport(address.url, address.key, patience_seconds)
    await transport.open()
    try:
        return await transport.request_any(method, path, **options)
    finally:
        await transport.close()


def _build_options(body: str | None, project: str | None) -> dict[str, Any]:
    """Return the headers and the body of a request."""
    headers = {} if project is None else {PROJECT_HEADER: project}
    if body is None:
        return {"headers": headers}
    try:
        json.loads(body)
    except ValueError as error:
        raise CommandFault(wording.describe_json_error("--body holds", error)) from None
    return {"data": body.encode(), "headers": {**headers, "Content-Type": "application/json"}}


def _read_own_project_key(data_dir: Path | None) -> str | None:
    return command.read_project_key((data_dir or command.load_settings().data_dir).absolute())


def _name_project_option(refused: RequestRefused) -> RequestRefused:
    """Return a refusal that names the option of the command instead of the header."""
    option = "by --project (`haulage ask /v1/projects` lists them)"
    sentence = str(refused).replace(f"in the header {PROJECT_HEADER}", option)
    return RequestRefused(refused.status, refused.code, sentence, refused.request_id)


def _describe_response(response: ApiResponse) -> Iterator[str]:
    """Yield what a response holds: JSON indented, other text as it is, and where a redirect leads."""
    if response.body is not None:
        yield json.dumps(response.body, ensure_ascii=False, indent=2)
    elif response.content:
        yield response.content.decode(errors="replace").rstrip("\n")
    elif location := response.headers.get("Location"):
        yield location
