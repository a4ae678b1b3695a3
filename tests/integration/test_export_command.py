"""`haulage export` as people and scripts type it: files, sentences and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import zipfile
from pathlib import Path

import openpyxl
import pyarrow.parquet as pq
import pytest

from dev.embedded.environment import MARKER_VARIABLE, write_environment_file_while_running
from dev.embedded.processes import RecordedProcess
from dev.embedded.run_file import RunFileContent
from infra.settings import Settings
from sims import rows as sample
from tests.support.command import CommandResult, running_silent_server, start_command, wait_for_exit
from tests.support.downloads import Downloads, expected_rows, parse_csv, running_downloads
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
SEED = 8


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


async def build_remote_options(exports: Downloads, *arguments: str) -> CommandResult:
    """Against the test's API, by its address and key."""
    env = {"HAULAGE_API_URL": exports.api_client.address, "HAULAGE_API_KEY": exports.key}
    return await wait_for_exit(await start_command("export", *arguments, env=env))


async def test_the_file_equals_its_source(exports: Downloads, tmp_path: Path) -> None:
    """Every row is there; without a terminal progress is plain lines on standard error."""
    out = tmp_path / "orders.csv"

    ended = await build_remote_options(
        exports, exports.source.url(rows=1_234, seed=SEED), "--out", str(out), "--page-size", "100"
    )

    assert ended.code == 0, ended.err
    assert parse_csv(out.read_bytes()) == expected_rows(SEED, range(1_234))
    assert ended.out.startswith(f"{out}: 1,234 rows, {out.stat().st_size:,} bytes")
    assert "\x1b" not in ended.err
    assert "1,234 of 1,234 rows" in ended.err


async def test_json_is_one_object(exports: Downloads, tmp_path: Path) -> None:
    """For scripts; bars are for terminals, on standard error."""
    out = tmp_path / "orders.csv"
    env = {"HAULAGE_API_URL": exports.api_client.address, "HAULAGE_API_KEY": exports.key, "FORCE_COLOR": "1"}

    ended = await wait_for_exit(
        await start_command("export", exports.source.url(rows=10, seed=SEED), "--out", str(out), "--json", env=env)
    )

    assert "10 of 10 rows" in ended.err
    assert "\x1b" in ended.err
    result = ended.json
    assert result.pop("seconds") > 0
    assert result.pop("task_id").startswith("dl_")
    shown = {"state": "succeeded", "file": str(out), "rows": 10, "bytes": out.stat().st_size}
    assert result == {**shown, "files": 1, "left_out": [], "warnings": []}


async def test_parquet(exports: Downloads, tmp_path: Path) -> None:
    """Another type, by the name of the file."""
    out = tmp_path / "orders.parquet"

    ended = await build_remote_options(exports, exports.source.url(rows=1_000, seed=SEED), "--out", str(out))

    assert ended.code == 0, ended.err
    assert pq.read_table(out).num_rows == 1_000


async def test_excel(exports: Downloads, tmp_path: Path) -> None:
    """With a template from a file; the result lists what it does not show."""
    out, template = tmp_path / "orders.xlsx", tmp_path / "template.json"
    template.write_text(json.dumps([{"name": "id", "title": "编号"}, {"name": "city", "title": "城市"}]))
    source = exports.source.url(rows=100, seed=SEED)

    ended = await build_remote_options(
        exports, source, "--type", "excel", "--title", "订单", "--template", str(template), "--out", str(out)
    )

    assert ended.code == 0, ended.err
    assert "The template does not show the keys order_no," in ended.err
    shown = list(openpyxl.load_workbook(out).worksheets[0].iter_rows(values_only=True))
    assert shown[:2] == [("订单", None), ("编号", "城市")]
    assert shown[2:] == [(row["id"], row["city"]) for row in (sample.row(SEED, number) for number in range(100))]


@pytest.mark.long
async def test_several_books_are_a_zip(settings: Settings, tmp_path: Path) -> None:
    """It is not put down under the name of a book."""
    downloads = settings.downloads.model_copy(update={"excel_file_max_rows": 40})
    async with running_downloads(settings.model_copy(update={"downloads": downloads})) as exports:
        source = exports.source.url(rows=100, seed=SEED)
        ended = await build_remote_options(
            exports, source, "--type", "excel", "--out", str(tmp_path / "orders.xlsx"), "--json"
        )
        found = await exports.api_client.ask("GET", "/v1/downloads?file_name=orders.zip", key=exports.key)

    assert ended.code == 0, ended.err
    assert ended.json["file"] == str(tmp_path / "orders.zip")
    with zipfile.ZipFile(tmp_path / "orders.zip") as archive:
        assert len(archive.namelist()) == ended.json["files"] > 1
    assert not (tmp_path / "orders.xlsx").exists()
    assert [item["file_name"] for item in found.body["items"]] == ["orders.zip"]


@pytest.mark.parametrize(("text", "sentence"), [(None, "There is no file"), ("{", "template.json holds no JSON")])
async def test_a_template_that_is_none(exports: Downloads, tmp_path: Path, text: str | None, sentence: str) -> None:
    """It is reported before any request."""
    template = tmp_path / "template.json"
    if text is not None:
        template.write_text(text)

    ended = await build_remote_options(
        exports, exports.source.url(rows=1), "--type", "excel", "--template", str(template)
    )

    assert ended.code == 2
    # The terminal's box breaks lines wherever it must.
    assert sentence.replace(" ", "") in "".join(ended.err.replace("│", "").split())


@pytest.mark.parametrize("out", ["a.csv", "a.parquet"])
async def test_a_template_for_another_file_than_a_workbook(exports: Downloads, tmp_path: Path, out: str) -> None:
    """It would not show in the file, so it is refused before any request."""
    (tmp_path / "template.json").write_text("[]")
    source, template = exports.source.url(rows=1), str(tmp_path / "template.json")

    ended = await build_remote_options(exports, source, "--out", str(tmp_path / out), "--template", template)

    assert ended.code == 2
    assert "Add--typeexcel" in "".join(ended.err.replace("│", "").split())
    assert not (tmp_path / out).exists()


async def test_what_reaches_the_source_and_the_file(exports: Downloads, tmp_path: Path) -> None:
    """Encoding and guard as asked for."""
    out = tmp_path / "orders.csv"
    source = exports.source.url(rows=10, seed=SEED)

    ended = await build_remote_options(exports, source, "--out", str(out), "--encoding", "gb18030", "--no-guard")

    assert ended.code == 0, ended.err
    written = out.read_bytes().decode("gb18030")
    assert parse_csv(written.encode()) == expected_rows(SEED, range(10))


async def test_a_failed_export(exports: Downloads, tmp_path: Path) -> None:
    """The sentence says why; no file appears."""
    source = exports.source.base + "/nothing-here"

    ended = await build_remote_options(exports, source, "--out", str(tmp_path / "out.csv"), "--json")

    assert ended.code == 1
    assert "export: done" not in ended.err, "it failed"
    assert (ended.json["state"], ended.json["code"]) == ("failed", "source_status")
    assert "The source answered 404 for page 0" in ended.json["error"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "env", "code", "sentence"),
    [
        ((), {}, 2, "haulage: No API was named, and no `haulage up` runs"),
        pytest.param(
            ("--api", "http://127.0.0.1:9"), {}, 2, "haulage: http://127.0.0.1:9 needs a key", marks=pytest.mark.long
        ),
        (
            ("--api", "http://127.0.0.1:9"),
            {"HAULAGE_API_KEY": "k"},
            3,
            "haulage: http://127.0.0.1:9 does not answer: connection refused.",
        ),
        pytest.param(
            ("--api", "nonsense"),
            {"HAULAGE_API_KEY": "k"},
            2,
            "haulage: “nonsense” is no address of an API.",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("--api", "http://[::1"),
            {"HAULAGE_API_KEY": "k"},
            2,
            "haulage: “http://[::1” is no address of an API.",
            marks=pytest.mark.long,
        ),
        (("--out", "/nonexistent/x.csv"), {}, 2, "haulage: There is no folder /nonexistent for the file."),
        pytest.param(("--out", "/"), {}, 2, "haulage: / is a folder.", marks=pytest.mark.long),
        pytest.param(
            ("--out", "x.xls"),
            {},
            2,
            "No export is a .xls file. Name it .csv, .parquet, .xlsx, or give --type.",
            marks=pytest.mark.long,
        ),
        (("--header", "no colon"), {}, 2, "is no header"),
    ],
)
async def test_what_keeps_it_from_beginning(
    tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str], code: int, sentence: str
) -> None:
    """It says what is missing, and nothing was started."""
    ended = await wait_for_exit(
        await start_command(
            "export", "http://127.0.0.1:1/rows", "--data-dir", str(tmp_path), *arguments, env={"COLUMNS": "200", **env}
        )
    )

    assert ended.code == code
    assert sentence in ended.err
    assert "Traceback" not in ended.err


async def test_a_refused_request(exports: Downloads) -> None:
    """A key that does not fit, and a request that is wrong, are the caller's to mend."""
    env = {"HAULAGE_API_URL": exports.api_client.address, "HAULAGE_API_KEY": "hlg_wrong"}
    source = exports.source.url(rows=1)

    assert (await wait_for_exit(await start_command("export", source, env=env))).code == 2
    ended = await build_remote_options(exports, source, "--page-size", "7")

    assert ended.code == 2
    assert ended.err.count("page_size: 7 is outside") == 1


@pytest.mark.long
async def test_ctrl_c_cancels(exports: Downloads, tmp_path: Path) -> None:
    """The server stops too, and nothing of the export stays."""
    env = {"HAULAGE_API_URL": exports.api_client.address, "HAULAGE_API_KEY": exports.key}
    source = exports.source.url(rows=500_000, delay_ms=50)
    process = await start_command("export", source, "--page-size", "100", "--out", str(tmp_path / "out.csv"), env=env)
    await eventually(lambda: 5 in exports.source.requests(page_size=100))

    process.send_signal(signal.SIGINT)

    ended = await wait_for_exit(process)
    assert ended.code == 130
    assert re.search("haulage: The download dl_[0-9a-z]{24} was cancelled; nothing of it is kept", ended.err)

    async def states() -> list[str]:
        reply = await exports.api_client.ask("GET", "/v1/downloads", key=exports.key)
        return [item["state"] for item in reply.body["items"] if item["state"] == "cancelled"]

    assert await eventually(states) == ["cancelled"]
    assert await exports.leftovers() == []
    assert list(tmp_path.iterdir()) == []


async def test_ctrl_c_while_the_server_is_asked(exports: Downloads, tmp_path: Path) -> None:
    """Whether a download began is not known yet; that is said, with where to look."""
    async with running_silent_server() as (address, asked):
        env = {"HAULAGE_API_URL": address, "HAULAGE_API_KEY": exports.key}
        process = await start_command("export", exports.source.url(rows=1), "--out", str(tmp_path / "out.csv"), env=env)
        await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)

        process.send_signal(signal.SIGINT)

        ended = await wait_for_exit(process)
    assert ended.code == 130
    assert "`haulage downloads list` shows whether it started a download." in ended.err


async def test_a_full_disk(exports: Downloads, tmp_path: Path) -> None:
    """The file stays on the server, and nothing of it here."""
    env = {"HAULAGE_API_URL": exports.api_client.address, "HAULAGE_API_KEY": exports.key}
    limit = 64 * 1024
    process = await start_command(
        "export",
        exports.source.url(rows=5_000),
        *("--out", str(tmp_path / "out.csv")),
        env=env,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )

    ended = await wait_for_exit(process)

    assert ended.code == 2
    assert re.search(
        r"out\.csv could not be written: File too large\. Free some space; `haulage ask /v1/downloads/dl_", ended.err
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
async def test_beside_a_running_house(downloads: Downloads, tmp_path: Path) -> None:
    """Where `haulage up` runs, no address and no key are needed; the project is made once.

    The command makes a project that leaves files, so nothing of the test is shared."""
    exports = downloads
    host, port = exports.api_client.host_and_port
    admin = exports.api_client.settings.api.admin_key.get_secret_value()
    variables = {
        MARKER_VARIABLE: "postgresql://unused",
        "HAULAGE_API__HOST": host,
        "HAULAGE_API__PORT": str(port),
        "HAULAGE_API__ADMIN_KEY": admin,
    }
    (tmp_path / "run.json").write_text(
        RunFileContent(supervisor=RecordedProcess.from_pid(os.getpid())).model_dump_json()
    )
    source = exports.source.url(rows=10, seed=SEED)

    with write_environment_file_while_running(tmp_path, variables):
        for number in range(2):
            out = tmp_path / f"{number}.csv"
            ended = await wait_for_exit(
                await start_command("export", source, "--data-dir", str(tmp_path), "--out", str(out), env={})
            )
            assert ended.code == 0, ended.err

    names = [item["name"] for item in (await exports.api_client.as_admin("GET", "/v1/projects")).body["items"]]
    assert names.count("local") == 1
    assert (tmp_path / "project-key").stat().st_mode & 0o077 == 0
