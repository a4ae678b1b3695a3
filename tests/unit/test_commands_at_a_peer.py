"""What commands ask of an API, and what they say and end with: in this process, with scripted answers."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import addresses, command, downloads, export, installation, orders, steering, tasks, transfers
from haulage.transfers import TransferJob
from tests.support.api_peer import TASK, ApiPeer, problem, running_api_peer, status

GOOD = {"code": 0, "msg": "SUCCESS"}
LAST_PAGE = {"next_cursor": None}
SLICE = "20261120T100000Z:20261120T101000Z"
LATER_SLICE = "20261121T100000Z:20261121T101000Z"
JOB = {
    "job_id": "job-1",
    "biz_id": 1,
    "app_id": 1,
    "file_path": "/f",
    "partial": False,
    "counts": {},
    "window_closes_at": "2026-11-24T10:00:00Z",
    "deadline_at": "2026-11-24T10:10:00Z",
}

RunCommand = Callable[..., Awaitable[int]]


@pytest.fixture
async def peer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiPeer]:
    """An API with scripted responses."""
    monkeypatch.setenv(command.KEY_VARIABLE, "hlg_key")
    async with running_api_peer() as running:
        yield running


@pytest.fixture
def run_command(peer: ApiPeer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Run a command's function; return its exit code instead of exiting."""
    started: list[Coroutine[Any, Any, int]] = []
    monkeypatch.setattr(command, "run_and_exit", started.append)
    # The log of this process is that of the tests.
    monkeypatch.setattr("infra.log.configure_json_logging", lambda _level: None)
    monkeypatch.setattr(logging.getLogger("haulage"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("haulage"), "propagate", True)

    async def run(function: Callable[..., None], *arguments: Any, **options: Any) -> int:
        function(*arguments, api=peer.url, data_dir=tmp_path, **options)
        return await started.pop()

    return run


def build_task(task_id: str, state: int) -> dict[str, Any]:
    """A task as the API lists it."""
    now = "2026-11-20T10:00:00Z"
    numbers = ("task_priority", "crt_retry_num", "max_retry_num", "max_retry_interval", "order_time")
    texts = ("user_id", "stage", "schedule_log", "task_content")
    more = {**dict.fromkeys(numbers, 0), **dict.fromkeys(texts, ""), "create_time": now, "modify_time": now}
    return {"task_id": task_id, "task_type": "video", "status": state, **more}


def build_slice(name: str, **changes: Any) -> dict[str, Any]:
    """A slice as the API lists it."""
    start, end = (f"{text[:4]}-{text[4:6]}-{text[6:11]}:{text[11:13]}:00Z" for text in name.split(":"))
    ends = {"claimed_at": start, "finished_at": end}
    same = {"state": "done", "track": "live", "attempts": 1, "workflow_id": "w", "window": {"start": start, "end": end}}
    return {"slice": name, **same, **ends, **changes}


async def test_tasks_are_created_from_a_pipe(peer: ApiPeer, run_command: RunCommand) -> None:
    """It can be read once only; the command read it twice, created nothing, and ended with 0."""
    reading, writing = os.pipe()
    os.write(writing, b"cats\ndogs\n")
    os.close(writing)
    peer.says(200, {**GOOD, "results": [{"task_id": "t_video_1"}, {"task_id": "t_video_2"}]})

    code = await run_command(tasks.create, "video", file=Path(f"/dev/fd/{reading}"))
    os.close(reading)

    assert code == 0
    assert [each["task_content"] for each in peer.seen[0].body["task_list"]] == ["cats", "dogs"]


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """JSON may hold other separators in a text: one task became two, and a message was no JSON."""
    path = tmp_path / "lines"
    lines = ['{"a": "b\u2028c"}', "x\x0cy\x85z", "", "last"]
    for text in ("\n".join(lines), "\n".join([*lines, ""]), "\r\n".join(lines)):
        path.write_bytes(text.encode())
        assert command.read_lines(path) == lines
    path.write_bytes(b"")
    assert command.read_lines(path) == []


async def test_a_large_failed_set_is_shown_by_its_beginning(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it was read and printed, hundreds of thousands of slices of a platform that had been away for long."""
    fault = {"code": "refused", "message": "No.", "hint": "Wait."}
    failed = build_slice("20261120T1000:20261120T1010", state="failed", fault=fault)
    platform = {"platform": "shop", "project_id": "p", "kind": "plain", "shop": "s", "base_url": "https://shop"}
    peer.says(200, {**platform, "slices_failed": 100_000, "sweeps_failed": 70})
    peer.says(200, {"items": [failed] * 100, "next_cursor": "more"})
    peer.says(200, {"items": [{**failed, "state": "done"}] * 70, "next_cursor": None})

    assert await run_command(orders.status, "shop") == 1

    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 43
    for line, left, query in ((21, "99,980", "state"), (42, "50", "sweep")):
        hint = f"and {left} more; `haulage ask '/v1/platforms/shop/slices?{query}=failed'` lists them"
        assert printed[line] == hint
    assert len(peer.seen) == 3


async def test_times_are_printed_with_their_zone(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person far from the server took them for those of the own clock."""
    moment = "2026-11-27T23:30:05.123456+02:00"
    attempt = {"held_time": moment, "end_time": moment, "outcome": "failed"}
    peer.says(200, {**GOOD, "task_data": {**build_task("a", 3), "attempts": [attempt]}})
    assert await run_command(tasks.show, ["a"]) == 0
    pause = {"paused_at": moment, "who": "ann", "reason": "The disk is full."}
    peer.says(200, {"items": [{"system": "tasks", "paused": pause}, {"system": "orders", "paused": None}]})
    assert await run_command(installation.list_systems) == 0

    assert capsys.readouterr().out.splitlines()[1:] == [
        "  2026-11-27 21:30:05 UTC: failed",
        "tasks: paused since 2026-11-27 21:30:05 UTC by ann: The disk is full.",
        "orders: running",
    ]
    closes_at = datetime.now(timezone(timedelta(hours=5))) + timedelta(hours=1)
    job = TransferJob.model_validate({**JOB, "status": "Pending", "window_closes_at": closes_at})
    assert transfers.describe_job_progress(job) == f"window open until {closes_at.astimezone(UTC):%H:%M:%S} UTC"


async def test_a_job_that_is_not_known_is_named(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API says only that there is no such job."""
    for function in (transfers.show, transfers.retry, transfers.cancel):
        peer.says(404, problem(404, "not_found", "There is no such job for this key."))
        assert await run_command(function, "foo") == 2
        assert capsys.readouterr().err == "haulage: foo: There is no such job for this key.\n"


async def test_where_a_message_is_no_json_is_said(run_command: RunCommand, capsys: pytest.CaptureFixture[str]) -> None:
    """It was only said that it is none."""
    assert await run_command(addresses.publish, "createUpdate", ["{uprn: 7}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("haulage: {uprn: 7} is no JSON: ")
    assert printed.endswith(": line 1 column 2 (char 1). Names and texts need double quotes.\n")


async def test_where_done_messages_are_is_said(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right after some were done, the list of all was empty."""
    for history, more in ((False, " Done messages are archived: see --history."), (True, "")):
        peer.says(200, {"items": [], **LAST_PAGE})
        assert await run_command(addresses.list_, history=history) == 0
        assert capsys.readouterr().out == f"No message matches.{more}\n"


@pytest.mark.parametrize("content", [None, b"\xff"])
async def test_a_text_that_cannot_be_read_is_said(
    run_command: RunCommand, tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, not by a traceback."""
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    assert await run_command(addresses.mend, 1, path, "mended") == 2
    assert capsys.readouterr().err.startswith(f"haulage: {path} cannot be read: ")


async def test_only_downloads_that_have_not_ended_are_chosen_to_be_cancelled(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among the newest of all there may be none; one that has begun meanwhile is cancelled once."""
    running = status(task_id=f"dl_{1:024d}")
    peer.says(200, {"items": [status(state="pending"), {**running, "state": "pending"}], **LAST_PAGE})
    peer.says(200, {"items": [running], **LAST_PAGE})
    for each in (TASK, running["task_id"]):
        peer.says(200, status(task_id=each, state="cancelled"))

    assert await run_command(downloads.cancel, host="erp.example.com") == 0

    assert [each.query.get("state") for each in peer.seen[:2]] == ["pending", "running"]
    assert [each.line for each in peer.seen[2:]] == [
        f"POST /v1/downloads/{each}/cancel" for each in (TASK, running["task_id"])
    ]
    assert capsys.readouterr().out == "2 of 2 downloads were cancelled.\n"


@pytest.mark.parametrize(
    ("function", "state", "said"),
    [
        (downloads.cancel, "failed", f"cancelled. Only pending and running ones can be cancelled: {TASK} is failed."),
        (downloads.retry, "succeeded", f"retried. Only failed ones can be retried: {TASK} is succeeded."),
        (downloads.delete, "running", f"deleted. Only succeeded ones can be deleted: {TASK} is running."),
    ],
)
async def test_why_a_download_is_left_as_it_is_is_said(
    function: Callable[..., None],
    state: str,
    said: str,
    peer: ApiPeer,
    run_command: RunCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only how many were changed was said, which was none."""
    for dry_run, counted in ((False, "0 of 1 downloads were "), (True, "0 of 1 would be ")):
        peer.says(200, status(state=state))
        assert await run_command(function, [TASK], dry_run=dry_run) == 0
        assert capsys.readouterr().out == f"{counted}{said}\n"
    for number in range(5):
        peer.says(200, status(state=state, task_id=f"dl_{number}"))
    assert await run_command(function, [f"dl_{number}" for number in range(5)]) == 0
    assert capsys.readouterr().out.endswith(f", dl_2 is {state}, 2 more are in another state, too.\n")


async def test_a_task_that_has_ended_is_said_not_to_be_cancelled(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the state in which it is."""
    peer.says(200, {**GOOD, "task_data": {**build_task("a", 3), "attempts": []}})
    peer.says(200, {**GOOD, "results": []})
    assert await run_command(steering.cancel, ["a"]) == 0
    said = "None was cancelled: only a task that is pending or running can be (a is success).\n"
    assert capsys.readouterr().out == said


async def test_a_job_that_has_ended_is_not_said_to_be_cancelled(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said to be under way, days later."""
    peer.says(200, {**JOB, "status": "Success"})
    assert await run_command(transfers.cancel, "job-1") == 0
    assert capsys.readouterr().out == "This job has ended; nothing was cancelled.\n"

    peer.says(200, {**JOB, "status": "Running"})
    peer.says(202, {**JOB, "status": "Running", "cancelling": True})
    assert await run_command(transfers.cancel, "job-1") == 0
    assert capsys.readouterr().out == "job-1 is being cancelled; hosts that have the file keep it.\n"
    assert [each.line.partition(" ")[0] for each in peer.seen] == ["GET", "GET", "POST"]


async def test_a_limit_that_leaves_downloads_is_said(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command may be run again."""
    peer.says(200, {"items": [status(state="failed")] * 2, "next_cursor": "more"})
    peer.says(200, status())

    assert await run_command(downloads.retry, cause="source_status", limit=1) == 0

    assert capsys.readouterr().out.endswith("There may be more, as --limit ends here: run it again.\n")


async def test_only_tasks_that_have_not_ended_are_chosen_to_be_cancelled(
    peer: ApiPeer, run_command: RunCommand
) -> None:
    """The newest two thousand of a type may all have ended."""
    peer.says(200, {**GOOD, "task_list": [build_task("a", 1)]})
    peer.says(200, {**GOOD, "task_list": [build_task("b", 2)]})
    peer.says(200, {**GOOD, "results": [{"task_id": "a"}, {"task_id": "b"}]})

    assert await run_command(steering.cancel, task_type="video") == 0

    assert [each.query.get("status") for each in peer.seen[:2]] == ["1", "2"]
    assert peer.seen[2].body == {"task_ids": ["a", "b"]}


async def test_a_complete_slice_is_waited_for_until_it_is_read_again(
    peer: ApiPeer, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker may begin later than the command looks: what is there then is of an earlier reading."""
    monkeypatch.setattr(steering, "POLL_SECONDS", 0)
    fault = {"code": "platform_failed", "message": "It failed.", "hint": ""}
    before = build_slice(SLICE, reread={"state": "failed", "ended_at": "2026-11-22T10:00:00Z", "fault": fault})
    under_way = build_slice(SLICE, reread={"state": "running", "ended_at": "2026-11-22T10:00:00Z"})
    after = build_slice(SLICE, reread={"state": "succeeded", "ended_at": "2026-11-23T10:00:00Z"})
    peer.says(200, {"items": [before], **LAST_PAGE})
    peer.says(202, {"done": [SLICE], "unchanged": []})
    for each in (before, under_way, after):
        peer.says(200, {"items": [each], **LAST_PAGE})

    assert await run_command(steering.redo, "shop-1", [SLICE]) == 0

    assert capsys.readouterr().out == f"{SLICE}: read again\n"
    assert not peer.answers
    # Not the whole ledger, which may have a hundred thousand slices.
    assert {each.query["start"] for each in peer.seen if "limit" in each.query} == {"2026-11-20T10:00:00+00:00"}


async def test_a_failed_set_is_changed_to_its_end(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API changes a thousand at a time, and says where to go on."""
    peer.says(200, {"done": [SLICE], "unchanged": [], "next_start": "2026-11-21T10:00:00Z"})
    peer.says(200, {"done": [LATER_SLICE], "unchanged": []})

    assert await run_command(steering.split, "shop-1") == 0

    assert [each.body.get("start") for each in peer.seen] == [None, "2026-11-21T10:00:00Z"]
    assert capsys.readouterr().out == f"{SLICE}: split\n{LATER_SLICE}: split\n"


@pytest.mark.parametrize(
    ("function", "arguments", "body"),
    [
        (installation.list_systems, (), {"items": [{"id": 7}]}),
        (installation.list_systems, (), {"items": ["none"]}),
        (installation.list_systems, (), {"id": 7}),
        (downloads.list_downloads, (), {"items": [{"id": 7}]}),
        (tasks.show, (["t"],), {"id": 7}),
    ],
)
async def test_json_of_another_server_is_no_answer(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    body: Any,
    peer: ApiPeer,
    run_command: RunCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ended in a traceback. Such a server may answer every path alike."""
    peer.says(200, body)
    peer.says(200, body)
    assert await run_command(function, *arguments) == 3
    said = f"haulage: {peer.url} does not answer as Haulage does: its answers have other fields. Give --api, or"
    assert capsys.readouterr().err.startswith(said)


async def test_a_refusal_of_another_server_is_no_answer(
    peer: ApiPeer, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Many refuse with a `detail`, as Haulage does, and without its other fields."""
    peer.says(404, {"detail": "Not Found"})
    assert await run_command(installation.list_systems) == 3
    assert "answered 404, not as Haulage does." in capsys.readouterr().err


async def test_an_error_of_ours_at_a_haulage_is_raised(peer: ApiPeer, run_command: RunCommand) -> None:
    """It is not taken for one of the server."""
    peer.says(200, {"items": [{"id": 7}]})
    peer.says(200, {"service": "haulage"})
    with pytest.raises(KeyError):
        await run_command(installation.list_systems)


async def test_a_key_file_without_a_key_is_written_anew(peer: ApiPeer, tmp_path: Path) -> None:
    """A command that was killed while it wrote the file, or a full disk, left one that no later command could use."""
    path = tmp_path / command.KEY_FILE
    path.touch()
    peer.says(201, {"key": {"api_key": "hlg_new"}})

    assert await command.load_or_create_project_key(peer.url, "admin", tmp_path) == "hlg_new"
    assert await command.load_or_create_project_key(peer.url, "admin", tmp_path) == "hlg_new"

    assert [each.name for each in tmp_path.iterdir()] == [command.KEY_FILE]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_header_that_is_given_twice_is_refused() -> None:
    """The first was left out in silence."""
    with pytest.raises(typer.BadParameter, match="cookie is given twice"):
        export.parse_headers(["Cookie: a=1", "cookie: b=2"])


async def test_an_id_with_a_mark_names_no_other_object(peer: ApiPeer, run_command: RunCommand) -> None:
    """What follows `#` or `?` was cut off: another download was cancelled."""
    peer.says(404, problem(404, "not_found", "There is nothing here."))
    assert await run_command(downloads.cancel, [f"{TASK}#2"]) == 2
    assert peer.seen[0].line == f"GET /v1/downloads/{TASK}#2"
