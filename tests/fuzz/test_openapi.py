"""Schemathesis against the running API: whatever the document lets callers send, and whatever it does not."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis.configuration import storage_directory

from sims.source import Source
from tests.support.api import ApiClient

pytestmark = pytest.mark.stack

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "4"))
"""Of each operation and kind of input; `make fuzz` takes many more."""
PHASES = "examples,coverage,fuzzing,stateful" if "FUZZ_EXAMPLES" in os.environ else "examples,fuzzing"
"""Only `make fuzz` also tries each bound of each field of each operation, which takes most of the time."""
# A stream has no end of its own: one event, or a while in which there is none, shows its form.
STREAMS = """
max-stream-events = 1

[[operations]]
include-path-regex = "/events$"
request-timeout = 10
"""
STORAGE = storage_directory(intent_to_write=False).path.absolute()
"""Has tables of characters, which take seconds to compute: the same folder for all runs."""
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@dataclass(frozen=True)
class Fuzzer:
    """Runs schemathesis in a folder; the run's seed repeats what it asked."""

    api_client: ApiClient
    folder: Path
    seed: int

    async def run(self, key: str, *tags: str, without: tuple[str, ...] = ()) -> tuple[int, str]:
        """Try the operations of some tags with a key; return the exit code and what was printed."""
        return await _run(self, key, tags, without)


@pytest.fixture
def fuzzer(api_client: ApiClient, tmp_path: Path, request: pytest.FixtureRequest) -> Fuzzer:
    """Return what tries the API of the test."""
    return Fuzzer(api_client, tmp_path, request.config.getoption("randomly_seed"))


async def _run(fuzzer: Fuzzer, key: str, tags: tuple[str, ...], without: tuple[str, ...]) -> tuple[int, str]:
    # A document cannot say which text is one of our cursors or a reachable URL, nor that 1.0 is no integer to us.
    excluded = ",".join(("positive_data_acceptance", *without))
    (fuzzer.folder / "schemathesis.toml").write_text(STREAMS)
    process = await asyncio.create_subprocess_exec(
        SCHEMATHESIS,
        "run",
        f"{fuzzer.api_client.address}/openapi.json",
        f"--header=Authorization: Bearer {key}",
        *(f"--include-tag={tag}" for tag in tags),
        f"--seed={fuzzer.seed}",
        f"--max-examples={EXAMPLES}",
        f"--phases={PHASES}",
        "--checks=all",
        f"--exclude-checks={excluded}",
        "--no-shrink",
        "--no-color",
        "--warnings=off",
        "--max-redirects=0",
        # A busy machine is no fault of the API's.
        "--request-timeout=60",
        "--suppress-health-check=too_slow",
        "--generation-database=none",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=fuzzer.folder,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(STORAGE)},
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode()


@pytest.mark.long
async def test_the_administration_keeps_its_word(api_client: ApiClient, fuzzer: Fuzzer) -> None:
    """No 5xx, no status, header or body that the document does not promise, no bad input taken."""
    key = api_client.settings.api.admin_key.get_secret_value()
    tags = ("health", "docs", "console", "session", "projects", "overview")
    code, output = await fuzzer.run(key, *tags)
    assert code == 0, output


@pytest.mark.long
async def test_the_systems_keep_to_their_schemas(api_client: ApiClient, source: Source, fuzzer: Fuzzer) -> None:
    """The same for what a project's key opens."""
    _, key = await api_client.make_project()
    # A client that opens the project's stream gets at once what runs.
    endless = {"source_url": source.url(rows=1_000_000, delay_ms=1_000), "page_size": 100}
    assert (await api_client.ask("POST", "/v1/downloads", key=key, json=endless)).status == 202
    # To delete a download is to cancel it: the catalogue keeps what became of it.
    tags = ("downloads", "webhooks", "overview")
    code, output = await fuzzer.run(key, *tags, without=("use_after_free",))
    assert code == 0, output


@pytest.mark.long
async def test_transfers_keep_their_word(api_client: ApiClient, fuzzer: Fuzzer) -> None:
    """Ids that hold slashes, windows that end in between, a GSE that is not there: nothing but what is promised."""
    _, key = await api_client.make_project()
    # To delete a task or a job is to cancel it: its state can still be asked for.
    code, output = await fuzzer.run(key, "transfers", without=("use_after_free",))
    assert code == 0, output


@pytest.mark.long
async def test_platforms_and_their_orders_keep_their_word(api_client: ApiClient, fuzzer: Fuzzer) -> None:
    """The same for what the operator sets up and what a project reads of it."""
    admin = api_client.settings.api.admin_key.get_secret_value()
    _, key = await api_client.make_project()
    for caller in (admin, key):
        code, output = await fuzzer.run(caller, "orders")
        assert code == 0, output


@pytest.mark.long
async def test_tasks_keep_their_word(api_client: ApiClient, fuzzer: Fuzzer) -> None:
    """Whatever is sent, an envelope comes back; no number of its own is a status of HTTP."""
    _, key = await api_client.make_project()
    code, output = await fuzzer.run(key, "tasks", without=("negative_data_rejection",))
    assert code == 0, output


@pytest.mark.long
async def test_what_operators_do_to_addresses_keeps_its_word(api_client: ApiClient, fuzzer: Fuzzer) -> None:
    """The same for searches, retries, purges and comparisons."""
    admin = api_client.settings.api.admin_key.get_secret_value()
    code, output = await fuzzer.run(admin, "addresses")
    assert code == 0, output
