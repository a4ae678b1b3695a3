"""`haulage downloads` as people and scripts type it: lists by cause, and one action for many."""

from __future__ import annotations

import pytest

from tests.support.command import CommandResult, start_command, wait_for_exit
from tests.support.downloads import Downloads
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


async def run(downloads: Downloads, *arguments: str) -> CommandResult:
    """Run `haulage downloads …` against the test's API."""
    env = {"HAULAGE_API_URL": downloads.api_client.address, "HAULAGE_API_KEY": downloads.key}
    return await wait_for_exit(await start_command("downloads", *arguments, env=env))


async def test_failed_downloads_are_retried_by_their_cause(downloads: Downloads) -> None:
    """A dry run changes nothing; those with another cause are left."""
    url = downloads.source.url(rows=10, seed=1, faults="404")
    failed = await downloads.run(url)
    good = await downloads.run(downloads.source.url(rows=10, seed=2))
    cause = failed["fault"]["code"]

    listed = await run(downloads, "list", "--cause", cause)
    tried = await run(downloads, "retry", "--cause", cause, "--dry-run")
    before = await downloads.status(failed["task_id"])
    retried = await run(downloads, "retry", "--cause", cause)

    async def has_run_again() -> bool:
        status = await downloads.status(failed["task_id"])
        return bool(status["state"] == "failed" and status["finished_at"] != before["finished_at"])

    await eventually(has_run_again)

    assert [line.split()[:2] for line in listed.out.splitlines()] == [[failed["task_id"], "failed"]], listed.err
    assert tried.out.endswith("1 of 1 would be retried.\n")
    assert before["state"] == "failed"
    assert (retried.code, retried.out) == (0, "1 of 1 downloads were retried.\n"), retried.err
    assert good["state"] == "succeeded"


@pytest.mark.long
async def test_files_are_deleted_and_what_is_not_chosen_stays(downloads: Downloads) -> None:
    """By id, or by conditions, but never without either."""
    one = await downloads.run(downloads.source.url(rows=10, seed=1), operator_id="ann")
    two = await downloads.run(downloads.source.url(rows=10, seed=2), operator_id="ben")

    all_of_them = [await run(downloads, name) for name in ("cancel", "retry", "delete")]
    unknown = await run(downloads, "list", "--state", "lost")
    elsewhere = await run(downloads, "delete", "--operator", "ann", "--host", "elsewhere", "--json")
    deleted = await run(downloads, "delete", "--operator", "ann", "--host", "127.0.0.1", "--json")

    assert [each.code for each in (*all_of_them, unknown)] == [2, 2, 2, 2]
    assert all("choose them by conditions" in each.err for each in all_of_them)
    assert elsewhere.json["task_ids"] == []
    assert deleted.json["task_ids"] == [one["task_id"]]
    states = [(await downloads.status(each["task_id"]))["state"] for each in (one, two)]
    assert states == ["expired", "succeeded"]
