"""The attempts of a download through the API: what was tried, how often, and what went wrong."""

from __future__ import annotations

import pytest

from activities.downloads import small_files
from cli import downloads as downloads_command
from cli.export import show_download
from haulage import Client
from tests.support.api import Reply
from tests.support.downloads import Downloads
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


SLOW_MS = 1_000
"""A file of three such pages is not small: fetchers read it."""


async def test_a_small_file_takes_one_step(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """What probes the source makes the file."""
    # Where a busy machine takes longer than that, fetchers make it.
    monkeypatch.setattr(small_files, "READ_SECONDS_MAX", PATIENCE_SECONDS)
    done = await exports.run(exports.source.url(rows=300), page_size=100)
    told = (await attempts(exports, done["task_id"])).body

    assert [(step["step"], step["state"]) for step in told["items"]] == [("probe", "succeeded")]


class RecordedProgress:
    """Keeps what a command shows of its progress."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        """See `ProgressDisplay`."""
        self.texts.append(text)


async def attempts(exports: Downloads, task_id: str, query: str = "") -> Reply:
    """The attempts of a download."""
    return await exports.api_client.ask("GET", f"/v1/downloads/{task_id}/attempts{query}", key=exports.key)


async def test_steps_are_told_newest_first(exports: Downloads) -> None:
    """Each step of a good run is there once, with its times, and none has a fault."""
    done = await exports.run(exports.source.url(rows=300, delay_ms=SLOW_MS), page_size=100)
    told = (await attempts(exports, done["task_id"])).body

    steps = told["items"]
    assert [step["step"] for step in steps] == ["finish", "assemble", "fetch_range", "probe"]
    assert {(step["state"], step["attempts"], step["fault"]) for step in steps} == {("succeeded", 1, None)}
    assert all(step["ended_at"] >= step["scheduled_at"] for step in steps)
    assert steps[2]["summary"] == "pages 0 to 2"
    assert told["more"] is False


async def test_only_so_many_steps_are_told(exports: Downloads) -> None:
    """With a limit only the newest are returned, and that there were others."""
    done = await exports.run(exports.source.url(rows=300, delay_ms=SLOW_MS), page_size=100)
    told = (await attempts(exports, done["task_id"], "?limit=2")).body

    assert [step["step"] for step in told["items"]] == ["finish", "assemble"]
    assert told["more"] is True


async def test_a_failed_step_tells_the_fault(exports: Downloads) -> None:
    """The fault of the source is shown at the activity that met it."""
    done = await exports.run(exports.source.url(rows=300, faults="404", only_page=1), page_size=100)
    told = (await attempts(exports, done["task_id"])).body

    failed = [step for step in told["items"] if step["state"] == "failed"]
    assert failed
    assert {step["fault"]["code"] for step in failed} == {done["fault"]["code"]}


async def test_a_probe_that_was_refused_is_no_success(exports: Downloads) -> None:
    """The step shows what the source answered, as the trouble of the download does, which commands show."""
    task_id = await exports.start(exports.source.url(rows=10, faults="429", seed=429))

    async def has_trouble() -> bool:
        return (await exports.status(task_id))["trouble"] is not None

    await eventually(has_trouble)
    trouble = (await exports.status(task_id))["trouble"]
    steps = [step for step in (await attempts(exports, task_id)).body["items"] if step["step"] == "probe"]
    async with Client(exports.api_client.address, exports.key) as client:
        shown = await client.read(task_id)
        await client.cancel(task_id)

    assert ("failed", trouble["code"]) in {(step["state"], step["fault"] and step["fault"]["code"]) for step in steps}
    assert "succeeded" not in {step["state"] for step in steps}
    assert shown.trouble is not None
    display = RecordedProgress()
    show_download(display, shown)
    assert trouble["message"] in display.texts[0]
    assert "the next is at" in downloads_command.describe_download_in_line(shown)


async def test_what_runs_is_told(exports: Downloads) -> None:
    """A step under way is running."""
    task_id = await exports.start(exports.source.url(rows=4_000, delay_ms=100), page_size=100)

    async def running() -> bool:
        steps = (await attempts(exports, task_id)).body["items"]
        return any((step["step"], step["state"]) == ("fetch_range", "running") for step in steps)

    await eventually(running)


async def test_trouble_of_ours_is_told_without_its_text(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that failed by our own doing and went well then says so, and nothing of what is inside."""
    from stores.downloads import catalogue  # noqa: PLC0415

    record, calls = catalogue.record_processing_start, []

    async def breaks_once(*arguments: object, **more: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("inside-7.example refused")
        await record(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(catalogue, "record_processing_start", breaks_once)
    done = await exports.run(exports.source.url(rows=10))
    told = await attempts(exports, done["task_id"])

    [step] = [step for step in told.body["items"] if step["step"] == "probe"]
    assert (step["state"], step["attempts"], step["fault"]["code"]) == ("succeeded", 2, "internal_error")
    assert "inside-7" not in str(told.body)


async def test_attempts_belong_to_the_project(exports: Downloads) -> None:
    """A key of another project gets 404."""
    done = await exports.run(exports.source.url(rows=10))
    _, stranger = await exports.api_client.make_project("stranger")
    reply = await exports.api_client.ask("GET", f"/v1/downloads/{done['task_id']}/attempts", key=stranger)
    assert (reply.status, reply.code) == (404, "not_found")
