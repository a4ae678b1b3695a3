"""`haulage ask`: one request to the API from a terminal, answered with its JSON.

What the command answers with:

- 0: the API did it
- 2: the API said no, or the command was wrong; the sentence says why
- 3: the API does not answer
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dev import surroundings
from haulage import HaulageError, Unreachable
from haulage.transport import Transport
from infra import settings

KEY_VARIABLE = "HAULAGE_API_KEY"
PATIENCE_SECONDS = 3.0


class NowhereToAsk(Exception):
    """Neither an API was named, nor does one run here."""


async def run(url: str | None, data_dir: Path, method: str, path: str, body: str | None) -> int:
    """Ask, and print the answer."""
    try:
        address, key = _place(url, data_dir)
        answer = await _answer(address, key, method, path, body)
    except (HaulageError, NowhereToAsk, ValueError) as error:
        print(f"haulage: {error}", file=sys.stderr)  # noqa: T201 (a command speaks)
        return 3 if isinstance(error, Unreachable) else 2
    print(json.dumps(answer, ensure_ascii=False, indent=2))  # noqa: T201 (a command speaks)
    return 0


async def _answer(address: str, key: str, method: str, path: str, body: str | None) -> object:
    # What changes something is not repeated: nobody knows whether the first time arrived.
    transport = Transport(address, key, PATIENCE_SECONDS if method == "GET" else 0.0)
    await transport.open()
    try:
        return await transport.json(method, path, **_sent(body))
    finally:
        await transport.close()


def _sent(body: str | None) -> dict[str, object]:
    if body is None:
        return {}
    try:
        json.loads(body)
    except ValueError as error:
        raise ValueError(f"--body holds no JSON: {error}.") from None
    return {"data": body.encode(), "headers": {"Content-Type": "application/json"}}


def _place(url: str | None, data_dir: Path) -> tuple[str, str]:
    """The API that was named, or the one that runs on this machine, and a key to it: there the admin's, by default."""
    key = os.environ.get(KEY_VARIABLE)
    if url is not None:
        if key is None:
            raise NowhereToAsk(f"{url} needs a key. Put your project's key into {KEY_VARIABLE}.")
        return url, key
    if not surroundings.adopt(data_dir) and surroundings.TELLING not in os.environ:
        raise NowhereToAsk(
            f"No API was named, and no `haulage up` runs in {data_dir}. Give --api (and {KEY_VARIABLE}), or start one."
        )
    settings.load.cache_clear()
    api = settings.load().api
    return f"http://{api.host}:{api.port}", key or api.admin_key.get_secret_value()
