"""Subscriptions: they get the latest state, never go backwards, and end if they cannot keep up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.downloads import responses, watching
from api.downloads.responses import DownloadResponse, DownloadStatusReader
from api.downloads.watching import DownloadStatusPoller, LatestStatesSubscription, SubscriptionEndReason
from domain.downloads.models import DownloadPhase, DownloadState, FileType


def answer(
    rows: int = 0, state: DownloadState = DownloadState.RUNNING, task_id: str = "dl_1", speed: int = 1
) -> DownloadResponse:
    """The status of a download."""
    return DownloadResponse(
        project_id="prj_1",
        task_id=task_id,
        state=state,
        state_label=state.chinese_label,
        type=FileType.CSV,
        file_name="x.csv",
        operator_id=None,
        source_hosts=[],
        rows=rows,
        total=100,
        times_processed=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        phase=DownloadPhase.FETCHING,
        rows_per_second=speed,
    )


class ScriptedStatusReader(DownloadStatusReader):
    """A board on which others wrote before what is read, look by look."""

    def __init__(self, looks: Sequence[DownloadResponse | Exception]) -> None:
        self._script = iter(looks)

    async def read_status(self, project_id: str, task_id: str) -> DownloadResponse:
        """The next line."""
        found = next(self._script)
        if isinstance(found, Exception):
            raise found
        return found

    async def read_status_while_running(self, project_id: str, before: DownloadResponse) -> DownloadResponse:
        """The next line."""
        return await self.read_status(project_id, before.task_id)


async def collect_updates(looks: Sequence[DownloadResponse | Exception]) -> list[DownloadResponse]:
    """All updates that a subscription receives while a poller runs."""
    watcher, heard = LatestStatesSubscription(), []
    polling = DownloadStatusPoller(ScriptedStatusReader(looks), ("prj_1", "dl_1"), {})
    polling.subscriptions.add(watcher)
    while (news := await watcher.wait_for_updates()) is not None:
        heard += news
    await polling.task
    return heard


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between looks."""
    monkeypatch.setattr(watching, "STATUS_CACHE_SECONDS", 0.0)


DONE = answer(rows=100, state=DownloadState.SUCCEEDED)


@given(st.lists(st.integers(0, 99), max_size=20))
def test_rows_never_go_backwards(rows: list[int]) -> None:
    """Whatever a killed fetcher or a lost heartbeat makes of the figures, and the last word is the end."""
    heard = asyncio.run(collect_updates([*map(answer, rows), DONE]))
    shown = [each.rows for each in heard]
    assert shown == sorted(set(shown))
    assert heard[-1] == DONE


async def test_what_did_not_change_is_not_told() -> None:
    """A new average alone is no news."""
    heard = await collect_updates([answer(1), answer(1, speed=2), answer(2), DONE])
    assert [each.rows for each in heard] == [1, 2, 100]


async def test_an_outage_ends_no_watch() -> None:
    """The next look may succeed."""
    heard = await collect_updates([answer(1), ConnectionError("the engine is away"), answer(2), DONE])
    assert [each.rows for each in heard] == [1, 2, 100]


async def test_what_is_missing_ends_the_watch() -> None:
    """There is nothing to wait for."""
    assert await collect_updates([answer(1), responses.build_missing_download_fault("dl_1")]) == [answer(1)]


async def test_a_slow_watcher_hears_the_newest_word_only() -> None:
    """Of each download the last one, in the order in which they first had news."""
    watcher = LatestStatesSubscription()
    for rows in range(50):
        watcher.queue_or_end_if_too_slow(answer(rows, task_id="dl_1"))
        watcher.queue_or_end_if_too_slow(answer(rows, task_id="dl_2"))
    news = await watcher.wait_for_updates()
    assert [(each.task_id, each.rows) for each in news or []] == [("dl_1", 49), ("dl_2", 49)]


async def test_a_watcher_with_a_long_backlog_is_dropped() -> None:
    """What a watcher does not take is not kept for ever."""
    watcher = LatestStatesSubscription()
    for number in range(watching.BACKLOG_MAX + 1):
        watcher.queue_or_end_if_too_slow(answer(task_id=f"dl_{number}"))
    assert await watcher.wait_for_updates() is None
    assert watcher.ending is SubscriptionEndReason.TOO_SLOW


async def test_the_last_word_is_heard_before_the_end() -> None:
    """An update before the end still arrives, one after it does not."""
    watcher = LatestStatesSubscription()
    watcher.queue_or_end_if_too_slow(DONE)
    watcher.end(SubscriptionEndReason.FINISHED)
    watcher.end(SubscriptionEndReason.STOPPING)
    watcher.queue_or_end_if_too_slow(answer(1))
    assert [await watcher.wait_for_updates(), await watcher.wait_for_updates()] == [[DONE], None]
    assert watcher.ending is SubscriptionEndReason.FINISHED


async def test_a_quiet_time_has_no_news() -> None:
    """With a timeout the caller gets an empty list, and can send a ping."""
    assert await LatestStatesSubscription().wait_for_updates(0.0) == []
