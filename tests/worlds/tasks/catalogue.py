"""The catalogue of those who use queues of tasks, and which flaw plays each behaviour."""

from __future__ import annotations

from collections.abc import Mapping

from tests.worlds.catalogue import Row

_KILLS = ("tests/faults/test_task_world_kills.py::test_nothing_differs_while_parts_are_killed",)

CATALOGUE: Mapping[int, Row] = {
    1: Row("a worker slower than its lease", flaws=("slow_worker",)),
    2: Row("a worker killed while it holds tasks", flaws=("worker_dies",)),
    3: Row("a heartbeat late though the worker lives", flaws=("beats_late",)),
    4: Row(
        "the answer to a create is lost and the caller repeats it",
        flaws=("create_lost", "create_lost_without_name", "create_differs"),
    ),
    5: Row("a rescue races the completion", flaws=("ends_with_its_lease",)),
    6: Row("a stale report with a lease that looks right", flaws=("stale_report",)),
    7: Row("a start in the future longer than the lease", flaws=("starts_later",)),
    8: Row("a delayed retry before ready work", flaws=("delayed_retry_first",)),
    9: Row("the answer to a hold is lost", flaws=("hold_lost",)),
    10: Row("a report whose answer is lost, or that comes twice", flaws=("report_lost", "report_twice")),
    11: Row("cancelled or taken away while a worker goes on", flaws=("cancelled", "put_back")),
    12: Row(
        "retries are counted wrongly",
        flaws=("fails_often", "fails_to_the_end", "workers_die_always", "config_changed"),
    ),
    13: Row(
        "a server or store restarts in mid-run",
        reason="It strikes all worlds that are played at the time, so it is no flaw of one: a test kills parts.",
        shown_by=_KILLS,
    ),
    14: Row("clocks differ", flaws=("clock_ahead", "clock_behind")),
    15: Row("a steady stream of high priority", flaws=("steady_priority",)),
    16: Row(
        "the record is removed when the task starts",
        reason="This is how a queue may be built, not how others behave; worker_dies shows that no task is lost.",
    ),
    17: Row(
        "the sweeper stalls, or dies with its lock",
        reason="Leases end by timers of each lane and no sweeper looks for them; of killed workers another goes on.",
        shown_by=_KILLS,
    ),
    18: Row("a task makes the next, and so do both copies", flaws=("daisy_chain",)),
    19: Row("texts that rot: empty, long, odd", flaws=("odd_texts", "text_refused")),
    20: Row(
        "callers burst, poll, ask for what is not there",
        flaws=("burst", "unknown_type", "read_at_once", "paused"),
    ),
}
