"""One shard on its way: whatever GSE says in whatever order, a target ends once and is sent only when that is due."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.transfers.gse import (
    FolderAndFileName,
    GseAgentWithUser,
    GseProgress,
    GseRecordsByAgent,
    PollSchedule,
    UploadOrDownload,
)
from domain.transfers.models import (
    FailureReason,
    TargetEndAndReason,
    TransferState,
)
from domain.transfers.shards import REFUSALS_MIN, GseTask, RetryAndSilenceLimits, ShardProgress, ShardTarget

SOURCE = GseAgentWithUser("source", "", "root")
RULES = RetryAndSilenceLimits(retries=2, retry_pause_seconds=5)
OK, RUNNING, TRANSFER_ERROR, NO_USER, TERMINATED = 0, 115, 701, 122, 126


def items(count: int) -> list[ShardTarget]:
    """Targets that wait."""
    return [ShardTarget(key, f"0:{key}", "") for key in range(count)]


def down(key: int, code: int, progress: int = 0) -> GseProgress:
    """What GSE says of a target."""
    return GseProgress(UploadOrDownload.DOWNLOAD, f"0:{key}", "", code, progress=progress)


def up(code: int) -> GseProgress:
    """What GSE says of the source."""
    return GseProgress(UploadOrDownload.UPLOAD, "source", "", code)


def begin_all(count: int, rules: RetryAndSilenceLimits = RULES) -> tuple[ShardProgress, GseTask]:
    """All targets in their first GSE task."""
    progress = ShardProgress(items(count), rules)
    return progress, begin(progress, progress.list_due_targets(0), "gse-1")


def begin(progress: ShardProgress, due: Sequence[ShardTarget], task_id: str) -> GseTask:
    """A GSE task that was taken."""
    task = progress.assign_new_task(due, SOURCE)
    progress.set_id_of_accepted_task(task, task_id)
    return progress.tasks[task.number]


def test_success_is_success_at_any_progress() -> None:
    """GSE may say 97 per cent at the end."""
    progress, task = begin_all(1)
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, OK, 97)]), 1)

    assert (progress.targets[0].state, progress.targets[0].progress) == (TransferState.SUCCESS, 100)
    assert progress.active_tasks == []


def test_what_is_dropped_may_have_arrived_where_gse_never_said_whether_it_began() -> None:
    """A GSE task without a known id cannot be terminated."""
    progress = ShardProgress(items(3), RULES)
    never_sent, unsure, failed = progress.targets
    progress.remove_unaccepted_task_and_reschedule(progress.assign_new_task([unsure], SOURCE), 5)
    task = begin(progress, [failed], "gse-1")
    progress.apply_results(
        task, GseRecordsByAgent.from_records([GseProgress(UploadOrDownload.DOWNLOAD, "0:2", "", TRANSFER_ERROR)]), 1
    )
    progress.end_unsent_targets_as_cancelled(progress.targets)

    assert {(item.state, item.reason) for item in progress.targets} == {(TransferState.FAILED, FailureReason.CANCELLED)}
    assert "may still arrive" in unsure.message
    assert all("may still arrive" not in item.message for item in (never_sent, failed))


def test_a_missing_record_says_nothing() -> None:
    """The target runs on until the deadline, and others' records do not touch it."""
    progress, task = begin_all(2)
    progress.apply_results(task, GseRecordsByAgent.from_records([down(1, OK), down(99, NO_USER)]), 1)

    assert [item.state for item in progress.targets] == [TransferState.RUNNING, TransferState.SUCCESS]
    assert progress.list_due_targets(1e9) == []


def test_a_failed_upload_does_not_touch_who_has_the_file() -> None:
    """Whether the success comes before or after it in the same response; the others are sent again."""
    for records in ([up(TRANSFER_ERROR), down(0, OK)], [down(0, OK), up(TRANSFER_ERROR)]):
        progress, task = begin_all(2)
        progress.apply_results(task, GseRecordsByAgent.from_records(records), 10)

        assert [item.state for item in progress.targets] == [TransferState.SUCCESS, TransferState.RUNNING]
        assert progress.list_due_targets(14) == []
        assert [item.key for item in progress.list_due_targets(15)] == [1]
        assert progress.tasks[1].broken


def test_an_upload_that_no_retry_mends_fails_the_rest() -> None:
    """With the cause."""
    progress, task = begin_all(2)
    progress.apply_results(task, GseRecordsByAgent.from_records([up(NO_USER), down(0, OK)]), 10)

    assert [item.state for item in progress.targets] == [TransferState.SUCCESS, TransferState.FAILED]
    assert progress.targets[1].reason is FailureReason.UPLOAD_FAILED
    assert "no such user" in progress.targets[1].message


def test_of_a_task_given_up_only_success_counts() -> None:
    """That its targets are terminated is our own doing."""
    progress, task = begin_all(2)
    progress.make_targets_due_of_task_without_source(task, 5)
    task = progress.tasks[1]
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, TERMINATED), down(1, OK)]), 6)

    assert [item.state for item in progress.targets] == [TransferState.RUNNING, TransferState.SUCCESS]
    assert [item.key for item in progress.list_due_targets(6)] == [0]


def test_a_failure_that_may_pass_is_retried_so_many_times() -> None:
    """Each GSE task fails a target once, however often it is polled; pauses double; then the last failure is final."""
    progress, task = begin_all(1)
    now, pauses = 0.0, []
    for number in range(1, RULES.retries + 2):
        for _ in range(3):
            progress.apply_results(task, GseRecordsByAgent.from_records([down(0, TRANSFER_ERROR)]), now)
        due_at = progress.targets[0].due_at
        if due_at is None:
            break
        pauses.append(due_at - now)
        now = due_at
        task = begin(progress, progress.list_due_targets(now), f"gse-{number + 1}")

    assert pauses == [5, 10]
    assert (progress.targets[0].state, progress.targets[0].code) == (TransferState.FAILED, TRANSFER_ERROR)
    assert len(progress.tasks) == RULES.retries + 1


def test_a_target_that_goes_on_after_a_failure_is_not_sent_again() -> None:
    """GSE itself may try again; what runs there must not be written by two tasks."""
    progress, task = begin_all(1)
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, TRANSFER_ERROR)]), 1)
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, RUNNING, 50)]), 2)

    assert progress.list_due_targets(1e9) == []
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, OK)]), 3)
    assert progress.targets[0].state is TransferState.SUCCESS


def test_a_task_that_gse_forgot_is_sent_again() -> None:
    """Neither at the first word nor within a moment: a gateway may err."""
    progress, task = begin_all(1)
    for _ in range(REFUSALS_MIN - 1):
        progress.fail_task_if_unknown_for_long(task, "no such task", 1)
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, RUNNING)]), 1)
    for _ in range(REFUSALS_MIN + 3):
        progress.fail_task_if_unknown_for_long(task, "no such task", 2)
    assert progress.list_due_targets(1e9) == []

    progress.fail_task_if_unknown_for_long(task, "no such task", 2 + RULES.silence_seconds)
    assert [item.key for item in progress.list_due_targets(100)] == [0]


def test_the_time_runs_out_with_what_is_known() -> None:
    """The message does not claim that it has not arrived, and says why that is unknown."""
    progress = ShardProgress(items(3), RULES)
    never_begun, unheard, running = progress.targets
    progress.remove_unaccepted_task_and_reschedule(
        progress.assign_new_task([never_begun], SOURCE), 5, "GSE answered 500."
    )
    lost = begin(progress, [unheard], "gse-1")
    begin(progress, [running], "gse-2")
    progress.record_query_error(lost, "GSE answered 502.")
    progress.end_unfinished_at_deadline()

    assert {item.state for item in progress.targets} == {TransferState.TIMEOUT}
    assert all("it may still do so" in item.message for item in progress.targets)
    assert "GSE answered 500." in never_begun.message
    assert "GSE answered 502." in unheard.message


def test_a_beginning_that_came_right_is_no_cause_of_the_end() -> None:
    """GSE was busy, then accepted it, and it never ended: the message says only that, with GSE's last code."""
    progress = ShardProgress(items(1), RULES)
    [item] = progress.targets
    progress.remove_unaccepted_task_and_reschedule(progress.assign_new_task([item], SOURCE), 5, "GSE answered 429.")
    task = begin(progress, [item], "gse-1")
    progress.apply_results(task, GseRecordsByAgent.from_records([down(0, RUNNING)]), 6)
    progress.end_unfinished_at_deadline()

    assert (item.state, item.reason, item.code) == (TransferState.TIMEOUT, FailureReason.DEADLINE, RUNNING)
    assert "429" not in item.message


def test_what_gse_answers_is_known_until_it_does_what_was_asked() -> None:
    """How often it was tried, and by when it is tried again; each GSE task clears only its own trouble."""
    progress = ShardProgress(items(2), RULES)
    first, second = progress.targets
    running = begin(progress, [second], "gse-1")
    for again_at in (5.0, 9.0):
        progress.remove_unaccepted_task_and_reschedule(
            progress.assign_new_task([first], SOURCE), again_at, "GSE answered 500."
        )
    said = (
        "GSE answered 500. It was asked 2 times in a row, and is asked again by 00:00:09 UTC "
        "until the job's time is over."
    )
    assert describe_trouble(progress) == (first.task_number, said)

    progress.apply_results(running, GseRecordsByAgent.from_records([down(1, RUNNING)]), 9)
    assert describe_trouble(progress) == (first.task_number, said)
    lost = begin(progress, [first], "gse-2")
    assert describe_trouble(progress) is None

    progress.has_unsaved_tasks = False
    progress.record_query_error(lost, "GSE answered 502.", 12.0)
    assert progress.has_unsaved_tasks
    said = "GSE answered 502. It was asked once, and is asked again by 00:00:12 UTC until the job's time is over."
    assert describe_trouble(progress) == (lost.number, said)
    progress.apply_results(lost, GseRecordsByAgent.from_records([down(0, RUNNING)]), 12)
    assert describe_trouble(progress) is None


def describe_trouble(progress: ShardProgress) -> tuple[int, str] | None:
    """Return which GSE task is in trouble, and the sentence about it."""
    return (progress.trouble.task_number, progress.trouble.describe()) if progress.trouble else None


def test_a_record_of_another_file_says_nothing() -> None:
    """GSE may report an older task of the same agent: another folder or another name is another file."""
    ours = FolderAndFileName("/data/app", "3a7b")

    def make_record(code: int, folder: str = "", name: str = "") -> GseProgress:
        content = {"type": "download", "dest_agent_id": "0:0", "dest_file_dir": folder, "dest_file_name": name}
        record = GseProgress.parse({"error_code": code, "content": content})
        assert record
        return record

    for stranger in (
        make_record(OK, "/elsewhere", "3a7b"),
        make_record(OK, "/data/app", "old.conf"),
        make_record(NO_USER, "", "old.conf"),
    ):
        assert (
            GseRecordsByAgent.from_records([make_record(RUNNING), stranger], ours).downloads[("0:0", "")].error_code
            == RUNNING
        )
    for same in (
        make_record(OK),
        make_record(OK, "/data/app/", "3a7b"),
        make_record(OK, "\\data\\app", "/data/app/3a7b"),
    ):
        assert GseRecordsByAgent.from_records([same], ours).downloads[("0:0", "")].error_code == OK


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 1e30, -5, None, "fast"])
def test_no_number_of_a_record_is_too_large_to_keep(number: object) -> None:
    """One odd speed must not hold up the others of its shard."""
    content = {"type": "download", "dest_agent_id": "0:0", "speed": number, "progress": number, "size": number}
    record = GseProgress.parse({"error_code": RUNNING, "content": content})
    assert record
    assert 0 <= record.speed < 2**63
    assert 0 <= record.size < 2**63
    assert 0 <= record.progress <= 100


def test_what_was_written_down_is_gone_on_from() -> None:
    """A target in a GSE task continues there; one in a task without a known id is due at once."""
    first, task = begin_all(3)
    first.apply_results(task, GseRecordsByAgent.from_records([down(0, OK), down(1, TRANSFER_ERROR)]), 1)
    lost = first.assign_new_task([first.targets[2]], SOURCE)
    copies = [ShardTarget(each.key, each.agent_id, "", each.state, each.task_number) for each in first.targets]

    second = ShardProgress(copies, RULES, dict(first.tasks))

    assert lost.task_id is None
    assert [item.key for item in second.list_due_targets(0)] == [2]
    assert [each.task_id for each in second.active_tasks] == ["gse-1"]
    second.apply_results(task, GseRecordsByAgent.from_records([down(0, NO_USER), down(1, TRANSFER_ERROR)]), 1)
    assert second.targets[0].state is TransferState.SUCCESS


def test_progress_is_written_in_steps_and_never_backwards() -> None:
    """A poll of 500 targets must not write 500 rows for a per cent each."""
    progress, task = begin_all(1)
    progress.list_and_clear_changed_targets()
    written = []
    for percent in (0, 1, 4, 5, 3, 9, 10, 100):
        progress.apply_results(task, GseRecordsByAgent.from_records([down(0, RUNNING, percent)]), 1)
        written += [item.progress for item in progress.list_and_clear_changed_targets()]

    assert written == [0, 5, 10, 100]


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("take"),
            st.lists(
                st.one_of(
                    st.builds(down, st.integers(0, 6), st.sampled_from([OK, RUNNING, TRANSFER_ERROR, NO_USER, 126])),
                    st.builds(up, st.sampled_from([OK, RUNNING, TRANSFER_ERROR, NO_USER, 104])),
                ),
                max_size=8,
            ),
        ),
        st.tuples(st.sampled_from(["send", "send-unknown", "refused", "strand", "cancel"]), st.just([])),
    ),
    max_size=40,
)


@given(st.integers(1, 5), steps)
def test_final_is_final_and_nothing_is_sent_for_nothing(
    count: int, course: list[tuple[str, list[GseProgress]]]
) -> None:
    """Against any course of events: no target leaves its end, and none is sent unless it waits or a task failed it."""
    progress = ShardProgress(items(count), RULES)
    ends: dict[int, TransferState] = {}
    succeeded: set[int] = set()
    now = 0.0
    for what, records in course:
        now += 30
        live = progress.active_tasks
        if what == "take" and live:
            progress.apply_results(live[-1], GseRecordsByAgent.from_records(records), now)
        elif what.startswith("send") and (due := progress.list_due_targets(now)):
            assert not {item.key for item in due} & ends.keys()
            task = progress.assign_new_task(due, SOURCE)
            if what == "send":
                progress.set_id_of_accepted_task(task, f"gse-{task.number}")
            else:
                progress.remove_unaccepted_task_and_reschedule(task, now)
        elif what == "refused" and live:
            progress.fail_task_if_unknown_for_long(live[0], "no", now)
        elif what == "strand" and live:
            progress.make_targets_due_of_task_without_source(live[0], now)
        elif what == "cancel":
            progress.end_targets_not_ended_yet(
                progress.targets[:1],
                TargetEndAndReason(state=TransferState.FAILED, reason=FailureReason.CANCELLED, message="gone"),
            )
        for item in progress.targets:
            assert ends.get(item.key, item.state) is item.state
            if item.state.is_final:
                ends[item.key] = item.state
                assert item.due_at is None
            assert item.failures <= RULES.retries + 1
            assert item.state is not TransferState.SUCCESS or item.progress == 100
        succeeded |= {item.key for item in progress.targets if item.state is TransferState.SUCCESS}
    assert {item.key for item in progress.unfinished}.isdisjoint(ends)
    assert succeeded <= ends.keys()


@pytest.mark.parametrize(("targets", "first"), [(1, [1, 1]), (100, [1, 1]), (101, []), (1_000, [])])
def test_polls_come_often_at_first_and_when_targets_finish(targets: int, first: list[int]) -> None:
    """1 and 1 where targets are few, then 2 for a while, then 5, then 10 seconds; back to 2 when targets have ended."""
    cadence = PollSchedule(targets)
    pauses = [cadence.advance_to_next_pause(any_just_ended=False) for _ in range(68 + len(first))]

    assert pauses == first + [2] * 9 + [5] * 56 + [10] * 3
    assert cadence.advance_to_next_pause(any_just_ended=True) == 2
    assert [cadence.advance_to_next_pause(any_just_ended=False) for _ in range(9)] == [2] * 8 + [5]
