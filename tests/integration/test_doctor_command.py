"""`haulage doctor` where nothing runs: each line is a sentence, and the first says what was looked at."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from cli import doctor
from dev.embedded.environment import (
    MARKER_VARIABLE,
    load_environment_and_describe,
    write_environment_file_while_running,
)
from dev.embedded.processes import RecordedProcess
from dev.embedded.run_file import RunFileContent
from domain.tasks import names
from infra import temporal
from infra.settings import Settings
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
ASKED = ["platforms", "receivers", "modules"]
"""What the database says of outside services."""
NOWHERE = {
    "HAULAGE_DATABASE__URL": "postgresql+asyncpg://127.0.0.1:9/x",
    "HAULAGE_OBJECTS__ENDPOINT": "127.0.0.1:9",
    "TEMPORAL_ADDRESS": "127.0.0.1:9",
}


async def test_what_is_wrong_is_told_in_sentences(tmp_path: Path) -> None:
    """What was found ends with one full stop before its remedy begins; what does not depend on others is well."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HAULAGE_", "TEMPORAL_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "doctor", "--data-dir", str(tmp_path)),
        cwd=ROOT,
        env={**clean, **NOWHERE},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    first, *lines = out.decode().splitlines()

    assert process.returncode == 1
    assert first == "Looking at the components that the environment names (HAULAGE_DATABASE__URL is set)."
    wrong = [line for line in lines if line.startswith("wrong")]
    found = {line.split()[1]: line for line in wrong}
    assert found.keys() == {"engine", "workers", "skew", "database", "bucket", *ASKED, "clock"}
    refused = "Temporal at 127.0.0.1:9 does not answer: Connection refused. Start Temporal, or set TEMPORAL_ADDRESS"
    assert all(refused in found[each] for each in ("engine", "workers", "skew"))
    assert "Secret key must not be empty. Correct HAULAGE_OBJECTS__…" in found["bucket"]
    assert [line for line in wrong if ".. " in line or not line.endswith(".")] == []


@pytest.mark.stack
async def test_queues_with_work_and_without_workers_are_named_in_json(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object says what was found for each check, and the exit code that something is wrong."""
    engine = await temporal.connect()
    await engine.start_workflow("none", id="waits", task_queue=names.QUEUE)

    async def is_named() -> bool:
        code = await doctor.run_and_print_checks(settings, "a test", as_json=True)
        document = json.loads(capsys.readouterr().out)
        [workers] = [each for each in document["checks"] if each["name"] == "workers"]
        assert (code, document["ok"], workers["ok"]) == (1, False, False)
        assert workers["found"].startswith(f"Work waits in queues that no worker serves: {names.QUEUE} (1).")
        assert {each["name"] for each in document["checks"] if each["ok"]} >= {"database", "bucket", "disk"}
        return True

    assert await eventually(is_named)


def test_whose_parts_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a installation that runs in the folder, unless the shell names its own; else the defaults."""
    monkeypatch.delenv(MARKER_VARIABLE, raising=False)
    assert load_environment_and_describe(tmp_path) == (
        f"the default addresses, as no `haulage up` runs in {tmp_path} and HAULAGE_DATABASE__URL is not set. "
        "`haulage up` (or `make up`) starts everything"
    )

    (tmp_path / "run.json").write_text(
        RunFileContent(supervisor=RecordedProcess.from_pid(os.getpid())).model_dump_json()
    )
    with (
        monkeypatch.context() as shell,
        write_environment_file_while_running(tmp_path, {MARKER_VARIABLE: "postgresql://its"}),
    ):
        # Remembered as absent, so that what is adopted goes with the context.
        shell.setenv(MARKER_VARIABLE, "")
        shell.delenv(MARKER_VARIABLE)
        assert load_environment_and_describe(tmp_path) == f"the components of the `haulage up` that runs in {tmp_path}"

    monkeypatch.setenv(MARKER_VARIABLE, "postgresql://own")
    assert (
        load_environment_and_describe(tmp_path)
        == "the components that the environment names (HAULAGE_DATABASE__URL is set)"
    )
