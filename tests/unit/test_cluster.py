"""The faults of the lab follow from their seed, and its record counts what it should."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from lab.topology import load_topology
from tests.cluster.__main__ import draw_faults
from tests.cluster.faults import KINDS
from tests.cluster.record import FAULTS_MIN, NOTHING, Answers, FaultRecord, Verdict, summarize
from tests.cluster.work import Work

TOPOLOGY = load_topology()
LAB: Any = SimpleNamespace(topology=TOPOLOGY, hosts=dict(TOPOLOGY.hosts), primary="db2")


def _record(kind: str = "host lost", under_way: int = 1, seconds: float = 3.0) -> FaultRecord:
    return FaultRecord(kind, "work1", under_way, 5.0, {"downloads": seconds, "tasks": 1.0}, 10, 2, 0.5)


def test_faults_follow_from_their_seed() -> None:
    """The same seed draws the same faults, another one others; every kind comes, and the restart of everything last."""
    runs = [[(each.kind, each.target) for each in draw_faults(LAB, 40, random.Random(seed), [])] for seed in (1, 1, 2)]

    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert len(runs[0]) == 40
    assert len({kind for kind, _ in runs[0]}) == len(KINDS)
    assert [kind for kind, _ in runs[0]].index("rolling restart") == 39


def test_chosen_kinds_alone_are_drawn() -> None:
    """As `make cluster KINDS=…` asks."""
    faults = list(draw_faults(LAB, 5, random.Random(1), ["host lost"]))

    assert {each.kind for each in faults} == {"host lost"}
    assert len(faults) == 5


@pytest.mark.parametrize("seed", range(20))
def test_the_host_of_the_primary_is_lost_by_its_own_kind_only(seed: int) -> None:
    """It needs a promotion, which the others do not make."""
    faults = draw_faults(LAB, 30, random.Random(seed), ["host lost", "host cut off", "delay", "loss"])

    assert LAB.primary not in {each.target for each in faults}


def test_only_faults_that_hit_work_count() -> None:
    """One that found nothing under way, and what is there to compare with, are no faults of the record."""
    records = [*(_record() for _ in range(FAULTS_MIN)), _record(under_way=0), _record(NOTHING)]
    figures = {figure.name: figure for figure in summarize(records, {"tasks": Verdict(7)})}

    assert (figures["faults that hit work"].value, figures["faults that hit work"].holds) == (FAULTS_MIN, True)
    assert (figures["lost"].value, figures["lost"].holds) == (0, True)
    assert figures["requests without an answer of use"].value == 20
    assert f"{NOTHING}: recovery, median" in figures


def test_what_was_lost_or_doubled_is_in_the_record() -> None:
    """Of every system; the record then says that it does not hold."""
    verdicts = {"orders": Verdict(5, lost=1), "tasks": Verdict(7, doubled=2)}
    figures = {figure.name: figure for figure in summarize([_record()], verdicts)}

    assert [(figures[name].value, figures[name].holds) for name in ("lost", "doubled")] == [(1, False), (2, False)]
    assert figures["accepted pieces of work"].value == 12
    assert figures["faults that hit work"].holds is False


def test_the_longest_silence_is_between_two_requests_that_succeeded() -> None:
    """Or between one of them and the beginning or end of the time that is looked at."""
    answers = Answers(succeeded_at=[0.5, 11.0, 14.0, 15.0])

    assert answers.find_longest_silence(10.0, 16.0) == 3.0
    assert answers.find_longest_silence(10.0, 30.0) == 15.0
    assert answers.find_longest_silence(20.0, 30.0) == 10.0


def test_recovery_is_by_work_that_began_after_the_fault() -> None:
    """What was under way may end by itself."""
    work = Work(open={"later": 9.0}, ended=[(1.0, 8.0), (6.0, 12.0), (7.0, 10.0)])

    assert work.find_first_end(5.0) == 10.0
    assert work.find_first_end(8.0) is None
