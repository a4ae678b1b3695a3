"""The judge of worlds of tasks sees loss, doubling, wrong holders and orders, false success and needless refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.worlds.tasks.judging import judge_world
from tests.worlds.tasks.options import plain_row
from tests.worlds.tasks.replaying import pause_seconds
from tests.worlds.tasks.scripted import (
    BROKEN,
    FIRST,
    SECOND,
    TICK,
    TOO_LATE,
    EventScript,
    judge,
    make_world,
    script_two_tasks,
)
from tests.worlds.tasks.seen import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCESS,
    HoldAttempt,
    ObservedStatus,
    OperatorAction,
    TaskObservations,
)
from tests.worlds.tasks.world import (
    LEASE_SECONDS,
    TaskWorld,
)
from tests.worlds.verdict import Ending


def test_what_goes_well_is_equal() -> None:
    """With flaws that fired, and with none; where none fired it shows nothing."""
    assert judge(script_two_tasks()) is Ending.EQUAL
    assert judge(script_two_tasks(), "fails_often") is Ending.EQUAL
    assert judge(script_two_tasks(), "fails_often", fires=False) is Ending.UNKNOWN
    late = script_two_tasks()
    late.late = "not in 1 s"
    assert judge(late) is Ending.LATE


def _change(list_: str, place: int, **changes: Any) -> Callable[[TaskObservations], None]:
    def change(seen: TaskObservations) -> None:
        things = getattr(seen, list_)
        things[place] = replace(things[place], **changes)

    return change


def _lose(seen: TaskObservations) -> None:
    seen.ended.pop()
    seen.counts = {"task_count": 1, "success": 1, "failed": 0, "cancelled": 0}


def _double(seen: TaskObservations) -> None:
    seen.ended.append(seen.ended[0])
    seen.counts = {"task_count": 3, "success": 3, "failed": 0, "cancelled": 0}


def _double_under_another_id(seen: TaskObservations) -> None:
    seen.ended.append(replace(seen.ended[1], task_id="third_kind_1"))
    seen.counts = {"task_count": 3, "success": 3, "failed": 0, "cancelled": 0}


def _answer_another_id(seen: TaskObservations) -> None:
    _double_under_another_id(seen)
    seen.created.append(replace(seen.created[1], task_id="third_kind_1"))


def _give_to_two(seen: TaskObservations) -> None:
    """The lease of the second task runs out unheard of, and is given out before that."""
    del seen.sayings[1]
    story = EventScript(seen)
    held = story.hold(10.9, SECOND, 4, 10.5, crt_retry_num=1)
    story.say(11.6, held, SUCCESS)
    seen.ended[1] = replace(seen.ended[1], crt_retry_num=1)


def _give_twice(seen: TaskObservations) -> None:
    seen.holdings.append(replace(seen.holdings[2]))


def _take_a_stale_word(seen: TaskObservations) -> None:
    EventScript(seen).say(11.45, seen.holdings[0], PENDING, crt_retry_num=1, log=BROKEN)


def _take_two_words(seen: TaskObservations) -> None:
    EventScript(seen).say(10.45, seen.holdings[1], FAILED)


def _reverse(seen: TaskObservations) -> None:
    """The one that is a minute ahead comes after the other."""
    for place, at in ((0, 10.2), (1, 10.1)):
        _change("holdings", place, sent_at=at, received_at=at + TICK, lease_end=at + TICK / 2 + LEASE_SECONDS)(seen)


def _give_after_a_cancel(seen: TaskObservations) -> None:
    seen.acts.append(OperatorAction("cancel", 10.05, 10.06, 0, FIRST))


def _give_while_paused(seen: TaskObservations) -> None:
    seen.acts += [OperatorAction("pause", 10.0, 10.01, 0), OperatorAction("resume", 11.2, 11.21, 0)]


def _start_early(seen: TaskObservations) -> None:
    """It may begin in the last minute, with a priority that moves it to an earlier time."""
    _change("created", 0, start=10.5)(seen)
    _change("holdings", 0, order_time_ms=10_500 - 60_000)(seen)


def _wait_in_vain(seen: TaskObservations) -> None:
    """A hold is empty though a task has been due for longer than any process may need to find it."""
    for place in (0, 1):
        _change("created", place, sent_at=1.0, answered_at=1.01)(seen)
    _change("holdings", 0, order_time_ms=1_005 - 60_000)(seen)
    _change("holdings", 1, order_time_ms=1_005)(seen)
    seen.asked.append(HoldAttempt(9.0, 9.5, 0, ()))


def _take_for_granted(seen: TaskObservations) -> None:
    seen.glimpses.append(ObservedStatus(SECOND, SUCCESS, 10.45, RUNNING))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        pytest.param(_lose, "is not found", id="lost"),
        pytest.param(_double, "is listed 2 times", id="listed-twice"),
        pytest.param(_double_under_another_id, "asked for 1 tasks at most", id="one-more-than-asked-for"),
        pytest.param(_answer_another_id, "name-1 was answered as [", id="another-id-for-one-name"),
        pytest.param(_give_to_two, "before lease 2 ended", id="held-by-two"),
        pytest.param(_give_twice, "twice under lease 3", id="one-lease-twice"),
        pytest.param(_take_a_stale_word, "was held under a later one", id="stale-word-taken"),
        pytest.param(_take_two_words, "under lease 2 was taken as", id="two-words-under-one-lease"),
        pytest.param(_reverse, "60000 ms ahead of it", id="another-order"),
        pytest.param(_change("ended", 1, status=FAILED), "ended as [status 4", id="false-failure"),
        pytest.param(_change("sayings", 1, status=FAILED), "ended as [status 3", id="false-success"),
        pytest.param(_change("ended", 0, crt_retry_num=2), "ended as [status 3, 2 retries", id="retries-miscounted"),
        pytest.param(
            _change("holdings", 2, crt_retry_num=0), "given out as [lease 3, 0 retries", id="retry-not-counted"
        ),
        pytest.param(_change("ended", 1, status=RUNNING), "stands at 2", id="never-ended"),
        pytest.param(_change("ended", 1, text="other"), "5 characters", id="another-text"),
        pytest.param(_change("ended", 0, log=""), "log ''], its history", id="log-lost"),
        pytest.param(_change("ended", 1, priority=1), "has priority 1", id="another-priority"),
        pytest.param(_change("holdings", 2, text=""), "stage '', 0 characters", id="text-lost-on-its-way"),
        pytest.param(_change("holdings", 2, stage="publish"), "stage 'publish'", id="another-stage"),
        pytest.param(_change("holdings", 2, order_time_ms=10_500), "placed 10500]", id="pause-cut-short"),
        pytest.param(_change("holdings", 2, order_time_ms=12_305), "s too early", id="given-out-too-early"),
        pytest.param(_change("holdings", 1, lease_end=10.9), "is too short", id="lease-cut-short"),
        pytest.param(_change("holdings", 1, lease_end=20.0), "is too long", id="lease-too-long"),
        pytest.param(_change("asked", 0, tasks=(FIRST,) * 101), "brought 101 tasks", id="more-than-the-limit"),
        pytest.param(_give_after_a_cancel, "after it was cancelled", id="given-out-after-a-cancel"),
        pytest.param(_give_while_paused, "while the type was paused", id="given-out-while-paused"),
        pytest.param(_start_early, "before its start", id="begun-before-its-start"),
        pytest.param(_wait_in_vain, "waited in vain", id="waited-in-vain"),
        pytest.param(_take_for_granted, "then read as 2", id="stale-read"),
        pytest.param(lambda seen: seen.counts.update(success=1), "the counts are", id="miscounted"),
        pytest.param(
            lambda seen: seen.crossed.append("a task of another type"), "a task of another type", id="of-another-world"
        ),
    ],
)
def test_what_must_not_be_is_seen(plant: Callable[[TaskObservations], None], words: str) -> None:
    """One defect is added to a run without any, and is reported as what it is."""
    seen = script_two_tasks()
    plant(seen)
    verdict = judge_world(make_world(), seen)
    assert verdict.ending is Ending.SILENT
    assert words in verdict.why


def test_a_refusal_needs_a_reason() -> None:
    """In time, by the holder, for the first time: then it has none."""
    seen = script_two_tasks()
    EventScript(seen).say(10.35, seen.holdings[1], SUCCESS, code=TOO_LATE)
    assert judge(seen) is Ending.NEEDLESS

    seen = script_two_tasks()
    EventScript(seen).say(12.3, seen.holdings[1], SUCCESS, code=TOO_LATE)
    assert judge(seen) is Ending.EQUAL, "its lease was over"

    seen = script_two_tasks()
    EventScript(seen).say(10.5, seen.holdings[1], FAILED, code=TOO_LATE)
    assert judge(seen) is Ending.EQUAL, "it had said something else before"

    for place, ending in ((0, Ending.EQUAL), (1, Ending.NEEDLESS)):
        seen = script_two_tasks()
        _change("sayings", 0, lost=1, code=TOO_LATE)(seen)
        seen.asked.append(HoldAttempt(10.25, 10.26, 0, (), is_lost=not place))
        assert judge(seen) is ending, "a hold that was lost may have taken it in between, one that was empty has not"

    seen = script_two_tasks()
    seen.refusals.append("set: 8020")
    assert judge(seen) is Ending.NEEDLESS


def test_a_cancelled_task_stays_so() -> None:
    """The word of its holder is refused, for a right cause."""
    story = EventScript()
    story.create(10.0, 1, SECOND)
    held = story.hold(10.1, SECOND, 1, 10.005)
    story.seen.acts.append(OperatorAction("cancel", 10.2, 10.21, 0, SECOND))
    story.say(10.3, held, SUCCESS, code=TOO_LATE)
    story.end(SECOND, CANCELLED)
    assert judge(story.close(), "cancelled") is Ending.EQUAL
    story.seen.sayings[0] = replace(story.seen.sayings[0], code=0)
    assert judge(story.close(), "cancelled") is Ending.SILENT
    del story.seen.sayings[0]
    story.seen.ended[0] = replace(story.seen.ended[0], status=FAILED)
    assert judge(story.close(), "cancelled") is Ending.SILENT


def test_what_a_lost_hold_took_comes_back() -> None:
    """It has failed once more then, which is right only if a hold was lost."""
    story = EventScript()
    story.create(10.0, 1, SECOND)
    held = story.hold(13.5, SECOND, 2, 13.2, crt_retry_num=1)
    story.say(13.6, held, SUCCESS)
    story.end(SECOND, SUCCESS, crt_retry_num=1)
    assert judge(story.close(), "hold_lost") is Ending.SILENT
    story.seen.asked.append(HoldAttempt(10.1, 10.12, 0, (), is_lost=True))
    assert judge(story.close(), "hold_lost") is Ending.EQUAL


def test_a_lost_report_may_have_been_taken_or_not() -> None:
    """Later events decide which."""
    for retries, log in ((1, BROKEN), (1, "")):
        story = EventScript()
        story.create(10.0, 1, SECOND)
        held = story.hold(10.1, SECOND, 1, 10.005)
        story.say(10.2, held, PENDING, crt_retry_num=1, log=BROKEN, lost=1, answered_at=13.4, code=TOO_LATE)
        again = story.hold(13.5, SECOND, 2, 13.2 if not log else 11.3, crt_retry_num=retries, log=log)
        story.say(13.6, again, SUCCESS)
        story.end(SECOND, SUCCESS, crt_retry_num=retries, log=log)
        assert judge(story.close(), "report_lost") is Ending.EQUAL


def test_a_word_without_a_lease_may_hit_another_holder() -> None:
    """It cannot be decided whose result it is: such a world shows no more than that."""
    story = EventScript()
    story.create(10.0, 1, SECOND)
    slow = story.hold(10.1, SECOND, 1, 10.005)
    story.hold(13.5, SECOND, 2, 13.2, crt_retry_num=1)
    story.say(13.6, slow, FAILED, is_leased=False)
    story.end(SECOND, FAILED, crt_retry_num=1)
    assert judge(story.close(), "slow_worker") is Ending.INVISIBLE
    story.seen.sayings[0] = replace(story.seen.sayings[0], is_leased=True)
    assert judge(story.close(), "slow_worker") is Ending.SILENT


def test_a_word_without_a_lease_may_hit_a_holder_that_was_not_seen() -> None:
    """The task had failed by time and was out again, by a hold whose response was lost."""
    story = EventScript()
    story.create(10.0, 1, SECOND)
    slow = story.hold(10.1, SECOND, 1, 10.005)
    story.say(13.6, slow, SUCCESS, is_leased=False)
    story.end(SECOND, SUCCESS, crt_retry_num=1)
    assert judge(story.close(), "slow_worker") is Ending.SILENT
    story.seen.asked.append(HoldAttempt(13.4, 13.42, 0, (), is_lost=True))
    assert judge(story.close(), "slow_worker") is Ending.INVISIBLE
    story.seen.sayings[0] = replace(story.seen.sayings[0], is_leased=True)
    assert judge(story.close(), "slow_worker") is Ending.SILENT


def test_a_hold_that_waits_may_bring_what_came_meanwhile() -> None:
    """A task was not due while its worker held it, however early its place in the queue is after that."""
    story = EventScript()
    story.create(10.0, 0, FIRST)
    story.create(10.0, 1, SECOND)
    first = story.hold(10.1, FIRST, 1, 10.005 - 60)
    second = story.hold(10.2, SECOND, 2, 10.005)
    story.say(11.0, first, PENDING, stage="publish")
    again = story.hold(10.5, FIRST, 3, 11.005 - 60, stage="publish", received_at=11.02, lease_end=13.01)
    for held in (second, again):
        story.say(11.1, held, SUCCESS)
    story.end(FIRST, SUCCESS, stage="publish")
    story.end(SECOND, SUCCESS)
    assert judge(story.close()) is Ending.EQUAL


def test_a_failure_that_hits_a_later_attempt_is_none() -> None:
    """Without a lease its count is that of an attempt which is over: the task only goes back to its place."""
    story = EventScript()
    story.create(10.0, 0, FIRST)
    slow = story.hold(10.1, FIRST, 1, 10.005 - 60)
    again = story.hold(13.5, FIRST, 2, 13.2, crt_retry_num=1)
    story.say(13.6, slow, PENDING, crt_retry_num=1, log=BROKEN, is_leased=False)
    last = story.hold(13.7, FIRST, 3, 13.605 - 60, crt_retry_num=1, log=BROKEN)
    story.say(13.8, last, SUCCESS, is_leased=False)
    story.end(FIRST, SUCCESS, crt_retry_num=1, log=BROKEN)
    assert judge(story.close(), "slow_worker") is Ending.INVISIBLE
    assert again.lease == 2


def test_pauses_double_or_are_all_the_same() -> None:
    """As the documents say."""
    rules = make_world().rules
    assert [pause_seconds(rules, retries) for retries in range(4)] == [1, 2, 2, 2]
    slower = TaskWorld(**{**make_world().model_dump(), "options": {**plain_row(), "pauses": "doubling from 2"}}).rules
    assert [pause_seconds(slower, retries) for retries in range(3)] == [2, 3, 3]
    fixed = TaskWorld(**{**make_world().model_dump(), "options": {**plain_row(), "pauses": "fixed"}}).rules
    assert [pause_seconds(fixed, retries) for retries in range(3)] == [1, 1, 1]
