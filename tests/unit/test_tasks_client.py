"""The client of the queues: what it sends, what it repeats, and what it makes of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from haulage import RequestRefused, transport
from haulage.tasks import HeldTask, NewTask, Status, TaskEntryOutcome, TaskRequestRefused, TaskResult, Tasks, TaskType
from tests.support.api_peer import ApiPeer, problem, running_api_peer
from tests.support.task_queue import make_held_task

GOOD = {"code": 0, "msg": "SUCCESS"}


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """An API with given responses."""
    async with running_api_peer() as running:
        yield running


@pytest.fixture
async def tasks(peer: ApiPeer) -> AsyncIterator[Tasks]:
    """A client of it."""
    async with Tasks(peer.url, "hlg_key", patience_seconds=2.0) as opened:
        yield opened


async def test_a_create_that_is_repeated_creates_no_second_task(peer: ApiPeer, tasks: Tasks) -> None:
    """The connection broke: both requests have the same name for the task, chosen by the client."""
    peer.says(200, None)
    peer.says(200, {**GOOD, "task_id": "t_video_1"})

    task_id = await tasks.create(NewTask(task_type="video", task_content="cats", task_priority=5))

    first, second = (seen.body["task_data"] for seen in peer.seen)
    assert task_id == "t_video_1"
    assert first == second
    assert len(first["task_id"]) == 32
    assert (first["task_type"], first["task_content"], first["task_priority"]) == ("video", "cats", 5)


async def test_a_name_of_the_callers_is_kept(peer: ApiPeer, tasks: Tasks) -> None:
    """It is what makes creating idempotent over restarts of the caller."""
    peer.says(200, {**GOOD, "task_id": "t_video_1"})

    await tasks.create(NewTask(task_type="video", task_id="order-7"))

    assert peer.seen[0].body["task_data"]["task_id"] == "order-7"


async def test_a_refusal_has_the_number_and_the_reason(peer: ApiPeer, tasks: Tasks) -> None:
    """HTTP says 200 all the same."""
    peer.says(200, {"code": 8035, "msg": "FAIL_REASON::There is no task 'x'."})

    with pytest.raises(TaskRequestRefused) as refused:
        await tasks.get("x")

    assert (refused.value.code, str(refused.value)) == (8035, "There is no task 'x'.")


async def test_a_part_that_is_gone_for_a_moment_is_waited_for(
    peer: ApiPeer, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    """8036 is the original's number for it. Why is logged at the first refusal, and once."""
    peer.says(200, {"code": 8036, "msg": "FAIL_REASON::A part does not answer."})
    peer.says(200, {"code": 8036, "msg": "FAIL_REASON::A part does not answer."})
    peer.says(200, GOOD | {"task_count": 3, "pending": 1, "running": 1, "success": 1, "failed": 0})

    assert (await tasks.counts("video")).pending == 1
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["request_waits: for up to 2 s: A part does not answer."]


async def test_a_request_without_an_answer_is_logged(
    peer: ApiPeer, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So that a person at a terminal knows what is waited for; one that waits on purpose is not."""
    monkeypatch.setattr(transport, "SLOW_ANSWER_SECONDS", 0.0)
    peer.says(200, GOOD | {"task_list": []})
    await tasks.hold("video", wait_seconds=30)
    assert caplog.records == []
    peer.says(200, GOOD)
    await tasks.ping()
    assert ["is not answered" in record.getMessage() for record in caplog.records] == [True]


async def test_patience_ends(peer: ApiPeer) -> None:
    """Then the refusal is the caller's."""
    peer.says(200, {"code": 8036, "msg": "FAIL_REASON::A part does not answer."})

    async with Tasks(peer.url, "k", patience_seconds=0.0) as tasks:
        with pytest.raises(TaskRequestRefused, match="A part does not answer"):
            await tasks.ping()


async def test_a_hold_waits_and_gives_tasks(peer: ApiPeer, tasks: Tasks) -> None:
    """What is not asked for is left to the API."""
    told: dict[str, Any] = make_held_task(1).model_dump(mode="json") | {"field_of_a_later_version": 1}
    peer.says(200, {**GOOD, "task_list": [told]})

    given = await tasks.hold("video", wait_seconds=20)

    assert given == [make_held_task(1)]
    assert peer.seen[0].body == {"task_type": "video", "wait": 20}


async def test_a_result_sends_only_what_was_set(peer: ApiPeer, tasks: Tasks) -> None:
    """An empty text is sent, None is not."""
    peer.says(200, GOOD)

    await tasks.set(TaskResult(task_id="t", lease=7, status=Status.PENDING, task_content=""))

    assert peer.seen[0].body == {"task_data": {"task_id": "t", "lease": 7, "status": 1, "task_content": ""}}


async def test_a_batch_tells_of_each(peer: ApiPeer, tasks: Tasks) -> None:
    """One that is refused takes none of the others with it."""
    results = [GOOD | {"task_id": "a"}, {"code": 8041, "msg": "FAIL_REASON::lost"}]
    peer.says(200, {"code": 8041, "msg": "FAIL_REASON::lost", "results": results})

    outcomes = await tasks.heartbeat([make_held_task(1), make_held_task(2)])

    assert outcomes == [TaskEntryOutcome(task_id="a"), TaskEntryOutcome(code=8041, msg="FAIL_REASON::lost")]
    assert [outcome.good for outcome in outcomes] == [True, False]
    assert peer.seen[0].body == {"task_list": [{"task_id": make_held_task(n).task_id, "lease": n + 1} for n in (1, 2)]}


async def test_those_that_a_part_did_not_take_are_sent_again(peer: ApiPeer, tasks: Tasks) -> None:
    """And no others; each has its outcome in the end."""
    away = {"code": 8036, "msg": "FAIL_REASON::A part does not answer."}
    peer.says(200, {**away, "results": [away, GOOD | {"task_id": "b"}]})
    peer.says(200, {**GOOD, "results": [GOOD | {"task_id": "a"}]})

    outcomes = await tasks.set_many([TaskResult(task_id=name, status=Status.SUCCESS) for name in "ab"])

    assert outcomes == [TaskEntryOutcome(task_id="a"), TaskEntryOutcome(task_id="b")]
    assert [[each["task_id"] for each in seen.body["task_list"]] for seen in peer.seen] == [["a", "b"], ["a"]]


async def test_a_batch_of_more_than_a_thousand_goes_in_several(peer: ApiPeer, tasks: Tasks) -> None:
    """In order."""
    for count in (1_000, 1):
        peer.says(200, {**GOOD, "results": [GOOD] * count})

    outcomes = await tasks.create_many([NewTask(task_type="video")] * 1_001)

    assert len(outcomes) == 1_001
    assert [len(seen.body["task_list"]) for seen in peer.seen] == [1_000, 1]


async def test_a_batch_of_long_texts_goes_in_several(peer: ApiPeer, tasks: Tasks) -> None:
    """The API takes 1 MiB in one request. Results of that size were all refused, and all of their tasks timed out."""
    results = [TaskResult(task_id=str(at), status=Status.PENDING, task_content="文" * 16_384) for at in range(20)]
    for count in (9, 9, 2):
        peer.says(200, {**GOOD, "results": [GOOD] * count})

    outcomes = await tasks.set_many(results)

    assert [outcome.good for outcome in outcomes] == [True] * 20
    assert all(int(seen.headers["Content-Length"]) < 2**20 for seen in peer.seen)
    assert [each["task_id"] for seen in peer.seen for each in seen.body["task_list"]] == [str(at) for at in range(20)]


async def test_an_entry_that_has_its_batch_refused_is_refused_alone(peer: ApiPeer, tasks: Tasks) -> None:
    """The API refuses the request: it is halved until what is at fault is alone, and all others are taken."""
    refusal = {"code": 8020, "msg": "FAIL_REASON::task_list[1].task_stage: it has 40 characters; send 32 or less."}
    peer.says(200, refusal)
    peer.says(200, refusal)
    peer.says(200, {**GOOD, "results": [GOOD | {"task_id": "a"}]})
    peer.says(200, refusal)
    peer.says(200, {**GOOD, "results": [GOOD | {"task_id": name} for name in "cd"]})

    outcomes = await tasks.set_many([TaskResult(task_id=name, status=Status.SUCCESS) for name in "abcd"])

    assert [(outcome.code, outcome.task_id) for outcome in outcomes] == [(0, "a"), (8020, ""), (0, "c"), (0, "d")]
    assert "send 32 or less" in outcomes[1].msg
    sent = ["".join(each["task_id"] for each in seen.body["task_list"]) for seen in peer.seen]
    assert sent == ["abcd", "ab", "a", "b", "cd"]


async def test_a_batch_that_is_refused_for_another_reason_raises(peer: ApiPeer, tasks: Tasks) -> None:
    """It is not the entries that are at fault: to send fewer of them would not help."""
    peer.says(200, {"code": 8045, "msg": "FAIL_REASON::There is no type."})

    with pytest.raises(TaskRequestRefused):
        await tasks.set_many([TaskResult(task_id=name, status=Status.SUCCESS) for name in "ab"])
    assert len(peer.seen) == 1


async def test_a_later_batch_that_is_refused_leaves_the_outcomes_of_the_earlier_ones(
    peer: ApiPeer, tasks: Tasks
) -> None:
    """They were lost with the error, and so were the ids: to create all again created them twice."""
    peer.says(200, {**GOOD, "results": [GOOD | {"task_id": "a"}] * 1_000})
    peer.says(429, {"code": 8036, "msg": "FAIL_REASON::This project has 1,000 tasks that have not ended."})

    async with Tasks(peer.url, "k", patience_seconds=0.0) as impatient:
        outcomes = await impatient.create_many([NewTask(task_type="video")] * 2_001)

    assert [outcome.good for outcome in outcomes] == [True] * 1_000 + [False] * 1_001
    assert "1,000 tasks that have not ended" in outcomes[-1].msg
    assert len(peer.seen) == 2


async def test_a_used_up_quota_is_explained(peer: ApiPeer, caplog: pytest.LogCaptureFixture) -> None:
    """By the sentence of the routes of tasks; it was said that something else than Haulage answered."""
    for _ in range(20):
        peer.says(429, {"code": 8036, "msg": "FAIL_REASON::This project has 40 tasks that have not ended."})

    async with Tasks(peer.url, "k", patience_seconds=1.5) as tasks:
        with pytest.raises(RequestRefused, match=r"^This project has 40 tasks") as refused:
            await tasks.create(NewTask(task_type="video"))

    assert (refused.value.status, refused.value.code) == (429, "8036")
    assert ["This project has 40 tasks" in record.getMessage() for record in caplog.records] == [True]


async def test_an_empty_batch_asks_nobody(peer: ApiPeer, tasks: Tasks) -> None:
    """The API refuses one."""
    nothing: list[HeldTask] = []

    assert await tasks.heartbeat(nothing) == []
    assert peer.seen == []


async def test_a_type_sends_only_what_was_set(peer: ApiPeer, tasks: Tasks) -> None:
    """The rest keeps its value."""
    peer.says(200, GOOD)

    await tasks.register(TaskType(task_type="video", max_retry_num=0))

    assert peer.seen[0].body == {"task_type_data": {"task_type": "video", "max_retry_num": 0}}


async def test_a_pause_is_logged_once(peer: ApiPeer, tasks: Tasks, caplog: pytest.LogCaptureFixture) -> None:
    """By whom and why no task is given out, and when that is over; and for what a request is repeated."""
    paused = {**GOOD, "task_list": [], "paused": "Tasks are paused since noon by ann: the disk is full."}
    for answer in (paused, paused, {**GOOD, "task_list": []}):
        peer.says(200, answer)
        await tasks.hold("video")
    refusal = problem(503, "system_paused", "Transfers are paused since noon by ann: GSE is upgraded.")
    peer.says(503, refusal)
    peer.says(503, refusal)
    peer.says(200, GOOD)
    await tasks.ping()

    assert [record.getMessage() for record in caplog.records] == [
        "hold_paused: type video: no task is given out. Tasks are paused since noon by ann: the disk is full.",
        "hold_resumed: type video: tasks are given out again",
        "request_waits: for up to 2 s: Transfers are paused since noon by ann: GSE is upgraded.",
    ]
