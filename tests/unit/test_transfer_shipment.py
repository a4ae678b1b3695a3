"""One shard on its way: whatever GSE says in whatever order, a target ends once and is sent only when that is due."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.transfers.shipping import Cadence
from domain.transfers.gse import Agent, Place, Record, Results, Side
from domain.transfers.models import End, Reason, State, sound_folder, summary
from domain.transfers.shipment import REFUSALS_MAX, Item, Rules, Sending, Shipment
from stores.tables.transfers import STATES

SOURCE = Agent("source", "", "root")
RULES = Rules(retries=2, retry_pause_seconds=5)
OK, RUNNING, TRANSFER_ERROR, NO_USER, TERMINATED = 0, 115, 701, 122, 126


def items(count: int) -> list[Item]:
    """Targets that wait."""
    return [Item(key, f"0:{key}", "") for key in range(count)]


def down(key: int, code: int, progress: int = 0) -> Record:
    """What GSE says of a target."""
    return Record(Side.DOWNLOAD, f"0:{key}", "", code, progress=progress)


def up(code: int) -> Record:
    """What GSE says of the source."""
    return Record(Side.UPLOAD, "source", "", code)


def begun(count: int, rules: Rules = RULES) -> tuple[Shipment, Sending]:
    """All targets in their first GSE task."""
    shipment = Shipment(items(count), rules)
    return shipment, begin(shipment, shipment.due(0), "gse-1")


def begin(shipment: Shipment, due: Sequence[Item], task_id: str) -> Sending:
    """A GSE task that was taken."""
    sending = shipment.begin(due, SOURCE)
    shipment.began(sending, task_id)
    return shipment.sendings[sending.number]


def test_success_is_success_at_any_progress() -> None:
    """GSE may say 97 per cent at the end."""
    shipment, sending = begun(1)
    shipment.take(sending, Results.of([down(0, OK, 97)]), 1)

    assert (shipment.items[0].state, shipment.items[0].progress) == (State.SUCCESS, 100)
    assert shipment.live == []


def test_what_is_dropped_may_have_arrived_where_gse_never_said_whether_it_began() -> None:
    """Nobody can give up a GSE task whose id was never told."""
    shipment = Shipment(items(3), RULES)
    never_sent, unsure, failed = shipment.items
    shipment.began_not(shipment.begin([unsure], SOURCE), 5)
    sending = begin(shipment, [failed], "gse-1")
    shipment.take(sending, Results.of([Record(Side.DOWNLOAD, "0:2", "", TRANSFER_ERROR)]), 1)
    shipment.drop(shipment.items)

    assert {(item.state, item.reason) for item in shipment.items} == {(State.FAILED, Reason.CANCELLED)}
    assert "may still arrive" in unsure.message
    assert all("may still arrive" not in item.message for item in (never_sent, failed))


def test_a_missing_record_says_nothing() -> None:
    """The target runs on until the deadline, and others' records do not touch it."""
    shipment, sending = begun(2)
    shipment.take(sending, Results.of([down(1, OK), down(99, NO_USER)]), 1)

    assert [item.state for item in shipment.items] == [State.RUNNING, State.SUCCESS]
    assert shipment.due(1e9) == []


def test_a_failed_upload_does_not_touch_who_has_the_file() -> None:
    """Whether the success stands before or after it in the same answer; the others are sent again."""
    for records in ([up(TRANSFER_ERROR), down(0, OK)], [down(0, OK), up(TRANSFER_ERROR)]):
        shipment, sending = begun(2)
        shipment.take(sending, Results.of(records), 10)

        assert [item.state for item in shipment.items] == [State.SUCCESS, State.RUNNING]
        assert shipment.due(14) == []
        assert [item.key for item in shipment.due(15)] == [1]
        assert shipment.sendings[1].broken


def test_an_upload_that_no_retry_mends_fails_the_rest() -> None:
    """With the cause."""
    shipment, sending = begun(2)
    shipment.take(sending, Results.of([up(NO_USER), down(0, OK)]), 10)

    assert [item.state for item in shipment.items] == [State.SUCCESS, State.FAILED]
    assert shipment.items[1].reason is Reason.UPLOAD_FAILED
    assert "no such user" in shipment.items[1].message


def test_of_a_task_given_up_only_success_counts() -> None:
    """That its targets are terminated is our own doing."""
    shipment, sending = begun(2)
    shipment.strand(sending, 5)
    sending = shipment.sendings[1]
    shipment.take(sending, Results.of([down(0, TERMINATED), down(1, OK)]), 6)

    assert [item.state for item in shipment.items] == [State.RUNNING, State.SUCCESS]
    assert [item.key for item in shipment.due(6)] == [0]


def test_a_failure_that_may_pass_is_retried_so_many_times() -> None:
    """Each GSE task fails a target once, however often it is asked; pauses double; then the last failure stands."""
    shipment, sending = begun(1)
    now, pauses = 0.0, []
    for number in range(1, RULES.retries + 2):
        for _ in range(3):
            shipment.take(sending, Results.of([down(0, TRANSFER_ERROR)]), now)
        due_at = shipment.items[0].due_at
        if due_at is None:
            break
        pauses.append(due_at - now)
        now = due_at
        sending = begin(shipment, shipment.due(now), f"gse-{number + 1}")

    assert pauses == [5, 10]
    assert (shipment.items[0].state, shipment.items[0].code) == (State.FAILED, TRANSFER_ERROR)
    assert len(shipment.sendings) == RULES.retries + 1


def test_a_target_that_goes_on_after_a_failure_is_not_sent_again() -> None:
    """GSE itself may try again; what runs there must not be written by two tasks."""
    shipment, sending = begun(1)
    shipment.take(sending, Results.of([down(0, TRANSFER_ERROR)]), 1)
    shipment.take(sending, Results.of([down(0, RUNNING, 50)]), 2)

    assert shipment.due(1e9) == []
    shipment.take(sending, Results.of([down(0, OK)]), 3)
    assert shipment.items[0].state is State.SUCCESS


def test_a_task_that_gse_forgot_is_sent_again() -> None:
    """Neither at the first word nor within a moment: a gateway may err."""
    shipment, sending = begun(1)
    for _ in range(REFUSALS_MAX - 1):
        shipment.refused(sending, "no such task", 1)
    shipment.take(sending, Results.of([down(0, RUNNING)]), 1)
    for _ in range(REFUSALS_MAX + 3):
        shipment.refused(sending, "no such task", 2)
    assert shipment.due(1e9) == []

    shipment.refused(sending, "no such task", 2 + RULES.silence_seconds)
    assert [item.key for item in shipment.due(100)] == [0]


def test_the_time_runs_out_with_what_is_known() -> None:
    """That it has not arrived is not claimed, and why nobody knows is told."""
    shipment = Shipment(items(3), RULES)
    never_begun, unheard, running = shipment.items
    shipment.began_not(shipment.begin([never_begun], SOURCE), 5, "GSE answered 500.")
    lost = begin(shipment, [unheard], "gse-1")
    begin(shipment, [running], "gse-2")
    shipment.unheard(lost, "GSE answered 502.")
    shipment.end_late()

    assert {item.state for item in shipment.items} == {State.TIMEOUT}
    assert all("it may still do so" in item.message for item in shipment.items)
    assert "GSE answered 500." in never_begun.message
    assert "GSE answered 502." in unheard.message


def test_a_beginning_that_came_right_is_no_cause_of_the_end() -> None:
    """GSE was busy, then took it, and it never ended: only that is told, with the code that GSE told last."""
    shipment = Shipment(items(1), RULES)
    [item] = shipment.items
    shipment.began_not(shipment.begin([item], SOURCE), 5, "GSE answered 429.")
    sending = begin(shipment, [item], "gse-1")
    shipment.take(sending, Results.of([down(0, RUNNING)]), 6)
    shipment.end_late()

    assert (item.state, item.reason, item.code) == (State.TIMEOUT, Reason.DEADLINE, RUNNING)
    assert "429" not in item.message


def test_a_record_of_another_file_says_nothing() -> None:
    """GSE may tell of an older task of the same agent: another folder or another name is another file."""
    ours = Place("/data/app", "3a7b")

    def told(code: int, folder: str = "", name: str = "") -> Record:
        content = {"type": "download", "dest_agent_id": "0:0", "dest_file_dir": folder, "dest_file_name": name}
        record = Record.read({"error_code": code, "content": content})
        assert record
        return record

    for stranger in (told(OK, "/elsewhere", "3a7b"), told(OK, "/data/app", "old.conf"), told(NO_USER, "", "old.conf")):
        assert Results.of([told(RUNNING), stranger], ours).downloads[("0:0", "")].error_code == RUNNING
    for same in (told(OK), told(OK, "/data/app/", "3a7b"), told(OK, "\\data\\app", "/data/app/3a7b")):
        assert Results.of([same], ours).downloads[("0:0", "")].error_code == OK


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 1e30, -5, None, "fast"])
def test_no_number_of_a_record_is_too_large_to_keep(number: object) -> None:
    """One odd speed must not hold up the others of its shard."""
    content = {"type": "download", "dest_agent_id": "0:0", "speed": number, "progress": number, "size": number}
    record = Record.read({"error_code": RUNNING, "content": content})
    assert record
    assert 0 <= record.speed < 2**63
    assert 0 <= record.size < 2**63
    assert 0 <= record.progress <= 100


def test_what_was_written_down_is_gone_on_from() -> None:
    """A target in a GSE task goes on there; one in a task that nobody has an id of is due at once."""
    first, sending = begun(3)
    first.take(sending, Results.of([down(0, OK), down(1, TRANSFER_ERROR)]), 1)
    lost = first.begin([first.items[2]], SOURCE)
    copies = [Item(each.key, each.agent_id, "", each.state, each.sending) for each in first.items]

    second = Shipment(copies, RULES, dict(first.sendings))

    assert lost.task_id is None
    assert [item.key for item in second.due(0)] == [2]
    assert [each.task_id for each in second.live] == ["gse-1"]
    second.take(sending, Results.of([down(0, NO_USER), down(1, TRANSFER_ERROR)]), 1)
    assert second.items[0].state is State.SUCCESS


def test_progress_is_written_in_steps_and_never_backwards() -> None:
    """A poll of 500 targets must not write 500 rows for a per cent each."""
    shipment, sending = begun(1)
    shipment.changes()
    written = []
    for progress in (0, 1, 4, 5, 3, 9, 10, 100):
        shipment.take(sending, Results.of([down(0, RUNNING, progress)]), 1)
        written += [item.progress for item in shipment.changes()]

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
def test_final_is_final_and_nothing_is_sent_for_nothing(count: int, course: list[tuple[str, list[Record]]]) -> None:
    """Against any course of events: no target leaves its end, and none is sent unless it waits or a task failed it."""
    shipment = Shipment(items(count), RULES)
    ends: dict[int, State] = {}
    succeeded: set[int] = set()
    now = 0.0
    for what, records in course:
        now += 30
        live = shipment.live
        if what == "take" and live:
            shipment.take(live[-1], Results.of(records), now)
        elif what.startswith("send") and (due := shipment.due(now)):
            assert not {item.key for item in due} & ends.keys()
            sending = shipment.begin(due, SOURCE)
            if what == "send":
                shipment.began(sending, f"gse-{sending.number}")
            else:
                shipment.began_not(sending, now)
        elif what == "refused" and live:
            shipment.refused(live[0], "no", now)
        elif what == "strand" and live:
            shipment.strand(live[0], now)
        elif what == "cancel":
            shipment.end(shipment.items[:1], End(state=State.FAILED, reason=Reason.CANCELLED, message="gone"))
        for item in shipment.items:
            assert ends.get(item.key, item.state) is item.state
            if item.state.final:
                ends[item.key] = item.state
                assert item.due_at is None
            assert item.failures <= RULES.retries + 1
            assert item.state is not State.SUCCESS or item.progress == 100
        succeeded |= {item.key for item in shipment.items if item.state is State.SUCCESS}
    assert {item.key for item in shipment.unfinished}.isdisjoint(ends)
    assert succeeded <= ends.keys()


def test_polls_come_often_at_first_and_when_targets_finish() -> None:
    """1, 1, then 2 for a while, then 5, then 10 seconds; back to 1 when targets have finished."""
    cadence = Cadence()
    pauses = [cadence.next_seconds(finishing=False) for _ in range(70)]

    assert pauses == [1] * 2 + [2] * 9 + [5] * 56 + [10] * 3
    assert cadence.next_seconds(finishing=True) == 1
    assert [cadence.next_seconds(finishing=False) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("counts", "state", "partial"),
    [
        ({}, State.PENDING, False),
        ({State.PENDING: 2}, State.PENDING, False),
        ({State.PENDING: 2, State.SUCCESS: 1}, State.RUNNING, False),
        ({State.RUNNING: 1, State.FAILED: 1}, State.RUNNING, False),
        ({State.SUCCESS: 3}, State.SUCCESS, False),
        ({State.SUCCESS: 3, State.FAILED: 1}, State.FAILED, True),
        ({State.TIMEOUT: 3, State.FAILED: 1}, State.FAILED, False),
        ({State.TIMEOUT: 3, State.SUCCESS: 1, State.FAILED: 0}, State.TIMEOUT, True),
    ],
)
def test_a_job_in_one_word(counts: dict[State, int], state: State, partial: bool) -> None:
    """Any failed target makes it Failed; `partial` says that others succeeded."""
    whole = summary(counts)

    assert (whole.state, whole.partial) == (state, partial)
    assert {each: count for each, count in whole.counts.items() if count} == {k: n for k, n in counts.items() if n}


def test_every_state_can_be_stored() -> None:
    """The table's check knows all of them, and no others."""
    assert set(STATES) == {state.value for state in State}


@pytest.mark.parametrize(
    ("folder", "meant"),
    [
        ("/d", "/d"),
        ("/d/", "/d"),
        ("//d///e//", "/d/e"),
        ("/", "/"),
        ("C:\\d\\", "C:\\d"),
        ("C:/", "C:/"),
        ("c:\\d\\e", "c:\\d\\e"),
    ],
)
def test_a_folder_is_one_folder_however_it_is_written(folder: str, meant: str) -> None:
    """Otherwise one file would be sent to one place twice."""
    assert sound_folder(folder) == meant
