"""`haulage ask` as people type it: one request, its answer or a sentence, and an exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.support.api import ApiClient, running_api

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The whole API."""
    async with running_api(settings) as api_client:
        yield api_client


async def run_ask(*arguments: str, url: str, key: str) -> tuple[int | None, str, str]:
    """Type it; the exit code, and what it says on both outputs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "ask", *arguments),
        cwd=ROOT,
        env={**clean, "HAULAGE_API_URL": url, **({"HAULAGE_API_KEY": key} if key else {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.long
async def test_the_answer_is_printed(api_client: ApiClient) -> None:
    """As JSON, whether the request reads or makes something."""
    key = api_client.settings.api.admin_key.get_secret_value()
    made = await run_ask(
        "/v1/projects", "--method", "post", "--body", '{"name": "仓库"}', url=api_client.address, key=key
    )
    listed = await run_ask("/v1/projects?limit=1", url=api_client.address, key=key)

    assert (made[0], listed[0]) == (0, 0), made[2] + listed[2]
    assert json.loads(listed[1])["items"][0]["project_id"] == json.loads(made[1])["project_id"]
    assert "仓库" in listed[1]


@pytest.mark.long
async def test_exit_codes_say_what_went_wrong(api_client: ApiClient) -> None:
    """The API's own sentence is 2, so is what is no JSON and a missing key; an address without a server is 3."""
    _, key = await api_client.make_project()
    refused = await run_ask("/v1/transfers/jobs?limit=0", url=api_client.address, key=key)
    no_json = await run_ask("/v1/transfers", "--method", "POST", "--body", "{", url=api_client.address, key=key)
    no_key = await run_ask("/v1/ping", url=api_client.address, key="")
    unreachable = await run_ask("/v1/ping", url="http://127.0.0.1:9", key=key)

    assert [each[0] for each in (refused, no_json, no_key, unreachable)] == [2, 2, 2, 3]
    assert "limit" in refused[2]
    assert "--body holds no JSON" in no_json[2]
    assert "HAULAGE_API_KEY" in no_key[2]
    assert [each[1] for each in (refused, no_json, no_key, unreachable)] == [""] * 4
