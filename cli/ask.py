"""`haulage ask`: one request to the API from a terminal; prints the JSON of the response.

Exit codes:

- 0: the request succeeded
- 2: the API refused it, or the command was wrong; a sentence says why
- 3: the API does not answer
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dev.embedded import data_folder
from haulage import HaulageError, Unreachable
from haulage.transport import Transport
from infra import settings

KEY_VARIABLE = "HAULAGE_API_KEY"
CONNECT_TIMEOUT_SECONDS = 3.0


class NoApi(Exception):
    """No API was named, and none runs on this machine."""


async def run(url: str | None, data_dir: Path, method: str, path: str, body: str | None) -> int:
    """Send the request and print the response; return the exit code."""
    try:
        address, key = _find_api(url, data_dir)
        response = await _send(address, key, method, path, body)
    except (HaulageError, NoApi, ValueError) as error:
        print(f"haulage: {error}", file=sys.stderr)  # noqa: T201 (output of a command)
        return 3 if isinstance(error, Unreachable) else 2
    print(json.dumps(response, ensure_ascii=False, indent=2))  # noqa: T201 (output of a command)
    return 0


async def _send(address: str, key: str, method: str, path: str, body: str | None) -> object:
    # A request that changes something is not repeated: the first one may have arrived.
    transport = Transport(address, key, CONNECT_TIMEOUT_SECONDS if method == "GET" else 0.0)
    await transport.open()
    try:
        return await transport.json(method, path, **_build_body(body))
    finally:
        await transport.close()


def _build_body(body: str | None) -> dict[str, object]:
    if body is None:
        return {}
    try:
        json.loads(body)
    except ValueError as error:
        raise ValueError(f"--body holds no JSON: {error}.") from None
    return {"data": body.encode(), "headers": {"Content-Type": "application/json"}}


def _find_api(url: str | None, data_dir: Path) -> tuple[str, str]:
    """Return the URL and key of the named API, or of the one on this machine with its admin key by default."""
    key = os.environ.get(KEY_VARIABLE)
    if url is not None:
        if key is None:
            raise NoApi(f"{url} needs a key. Put your project's key into {KEY_VARIABLE}.")
        return url, key
    if not data_folder.load_environment(data_dir) and data_folder.MARKER_VARIABLE not in os.environ:
        raise NoApi(
            f"No API was named, and no `haulage up` runs in {data_dir}. Give --api (and {KEY_VARIABLE}), or start one."
        )
    settings.load.cache_clear()
    api = settings.load().api
    return f"http://{api.host}:{api.port}", key or api.admin_key.get_secret_value()
