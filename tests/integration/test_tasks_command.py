"""`haulage tasks` as people and scripts type it: queues, a worker that runs programs, sentences and exit codes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.command import CommandResult, start_command, wait_for_exit
from tests.support.tasks import FAILED, SUCCESS, Tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register(retry_interval=1, max_retry_interval=1)
    return shared_tasks


def build_environment(queue: Tasks) -> dict[str, str]:
    """Return the variables that name the test's API and its key."""
    return {"HAULAGE_API_URL": queue.api_client.address, "HAULAGE_API_KEY": queue.key}


async def run(queue: Tasks, *arguments: str) -> CommandResult:
    """Run `haulage tasks …` against the test's API."""
    return await wait_for_exit(await start_command("tasks", *arguments, env=build_environment(queue)))


async def test_a_program_does_each_task(queue: Tasks, tmp_path: Path) -> None:
    """It reads the content on standard input, all of it from the first moment; one that fails is run again."""
    created = await run(queue, "create", "video", "--register", "good", "bad")
    task_ids = created.out.split()
    await run(queue, "register", "video", "--retries", "1", "--lease-seconds", "20")
    note = f'[ -f /dev/stdin ] || exit 9; read -r text; echo "$TASK_ID $text" >> {tmp_path}/done'
    script = f'{note}; [ "$text" = good ] || {{ echo broken >&2; exit 3; }}'

    ended = await run(queue, "work", "video", "--until-empty", "--json", "--", "sh", "-c", script)

    assert (ended.code, ended.json) == (1, {"success": 1, "failed": 1}), ended.err
    assert f"task {task_ids[1]}, attempt 2: sh exited with 3: broken\n" in ended.err
    assert sorted((tmp_path / "done").read_text().splitlines()) == sorted(
        [f"{task_ids[0]} good", f"{task_ids[1]} bad", f"{task_ids[1]} bad"]
    )
    good, bad = [await queue.task(task_id) for task_id in task_ids]
    assert (good["status"], bad["status"]) == (SUCCESS, FAILED)
    assert "sh exited with 3: broken" in bad["schedule_log"]
    shown = await run(queue, "show", *task_ids)
    assert [line.partition(": ")[2] for line in shown.out.splitlines() if not line.startswith(" ")] == [
        "success, 'good'",
        "failed, 'bad'",
    ]
    assert ": failed" in shown.out.splitlines()[-2]
    assert shown.out.splitlines()[-1] == "  last failure: sh exited with 3: broken"


@pytest.mark.long
async def test_a_worker_stops_at_ctrl_c(queue: Tasks, tmp_path: Path) -> None:
    """The program that runs may end; what has not begun waits for another worker."""
    await run(queue, "create", "video", "--register", *(str(number) for number in range(5)))
    script = f"touch {tmp_path}/begun; sleep 1; touch {tmp_path}/ended"
    worker = await start_command(
        *("tasks", "work", "video", "--concurrency", "1", "--", "sh", "-c", script), env=build_environment(queue)
    )
    await eventually((tmp_path / "begun").exists)

    worker.send_signal(signal.SIGINT)
    ended = await wait_for_exit(worker)

    assert ended.code == 0, ended.err
    assert (tmp_path / "ended").exists()
    counts = await queue.counts()
    assert (counts["success"] + counts["pending"], counts["running"], counts["failed"]) == (5, 0, 0)
    assert counts["success"] >= 1


@pytest.mark.long
async def test_tasks_are_created_from_a_file_and_counted(queue: Tasks, tmp_path: Path) -> None:
    """A line is a task; lists show them by state."""
    lines = tmp_path / "names"
    lines.write_text("a\nb\nc\n")

    created = await run(queue, "create", "video", "--register", "--file", str(lines), "--json")
    counted, every = await run(queue, "counts", "video"), await run(queue, "counts")
    listed = await run(queue, "list", "video", "--status", "pending", "--json")
    await run(queue, "cancel", created.json["task_ids"][0])
    after = await run(queue, "counts", "video", "--json")

    assert counted.out == "video: 3 pending, 0 running, 0 success, 0 failed, 0 cancelled\n"
    assert every.out == counted.out
    assert sorted(task["task_content"] for task in listed.json["tasks"]) == ["a", "b", "c"]
    assert (after.json["pending"], after.json["cancelled"]) == (2, 1)


@pytest.mark.long
async def test_a_paused_type_is_resumed(queue: Tasks) -> None:
    """A worker gets nothing in between."""
    await run(queue, "create", "video", "--register", "a")

    paused = await run(queue, "pause", "video", "--reason", "a test")
    held = await queue.hold(limit=1)
    resumed = await run(queue, "resume", "video", "--reason", "a test")

    assert (paused.out, held, resumed.out) == ("video: paused\n", [], "video: resumed\n")
    assert len(await queue.hold(limit=1)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(("create", "video"), 2, "No task was given.", id="no task", marks=pytest.mark.long),
        pytest.param(("create", "unknown", "a"), 1, "There is no type 'unknown'", id="unknown type of many"),
        pytest.param(
            ("counts", "unknown"),
            2,
            "There is no type 'unknown' for this key. Register it with `haulage tasks register`.",
            id="unknown type",
            marks=pytest.mark.long,
        ),
        pytest.param(("counts", "--wait"), 2, "name the type", id="wait without a type"),
        pytest.param(
            ("list", "video", "--status", "odd"),
            2,
            "odd is no state of a task",
            id="unknown state",
            marks=pytest.mark.long,
        ),
        pytest.param(("create", "video", "--file", "/nowhere"), 2, "/nowhere cannot be read", id="no file"),
        pytest.param(("work", "video", "--", "no-such"), 2, "There is no program no-such", id="unknown program"),
        pytest.param(
            ("work", "unknown", "--", "true"),
            2,
            "There is no type 'unknown'",
            id="worker without a type",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_what_cannot_be_done_is_said(queue: Tasks, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    """In one sentence on standard error, or as JSON, with the exit code of its kind."""
    ended = await run(queue, *arguments)

    assert (ended.code, sentence in ended.err, ended.out) == (code, True, ""), ended


async def test_tasks_that_have_failed_give_an_exit_code(queue: Tasks) -> None:
    """A script that waits for the queue learns of it."""
    await queue.create()
    [held] = await queue.hold(limit=1)
    await queue.set(held, FAILED)

    waited = await run(queue, "counts", "video", "--wait", "--json")

    assert waited.code == 1
    assert json.loads(waited.out)["failed"] == 1
