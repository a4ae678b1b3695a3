"""The bench of orders: what counts as reached, and what its figures and its chart say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bench.orders import figures
from bench.orders.rounds import Round
from bench.report import Figure

GOOD = Round(
    seed=1,
    rows=1_000_000,
    seconds=20,
    cpu_seconds=20,
    serving_seconds=10,
    requests=1_500,
    changes=900,
    lost=0,
    duplicated=0,
    invented=0,
)


def results(ours: Round = GOOD, dlt_seconds: float = 65) -> figures.Results:
    """Two sizes, both contenders."""
    small = replace(ours, rows=10_000, seconds=2, cpu_seconds=0.2, serving_seconds=0.1, requests=100)
    dlt = replace(GOOD, seconds=dlt_seconds, lost=300, seed=2)
    return {
        10_000: {
            "ours": [replace(small, lost=0, duplicated=0, invented=0)],
            "dlt": [replace(dlt, rows=10_000, seconds=1.5, lost=3)],
        },
        1_000_000: {"ours": [ours], "dlt": [dlt]},
    }


def select_held_figures(found: figures.Results) -> Mapping[str, Figure]:
    """The figures that the issue names."""
    return {each.name: each for each in figures.figures(found) if each.holds is not None}


def test_what_the_issue_names_is_reached() -> None:
    """Nothing lost, nothing twice, three times as fast as dlt at a million, linear."""
    named = select_held_figures(results())
    assert {name: each.holds for name, each in named.items()} == {
        "ours: rows lost": True,
        "ours: rows duplicated": True,
        "ours: rows invented": True,
        "ours ÷ dlt, 10,000 orders": True,
        "ours ÷ dlt, 1,000,000 orders": True,
        "our CPU for a row, 1,000,000 ÷ 10,000 orders": True,
    }
    assert named["ours ÷ dlt, 1,000,000 orders"].value == pytest.approx(3.25)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (results(replace(GOOD, lost=1)), "ours: rows lost"),
        (results(replace(GOOD, duplicated=1)), "ours: rows duplicated"),
        (results(replace(GOOD, invented=1)), "ours: rows invented"),
        (results(dlt_seconds=59), "ours ÷ dlt, 1,000,000 orders"),
        (results(replace(GOOD, cpu_seconds=30)), "our CPU for a row, 1,000,000 ÷ 10,000 orders"),
    ],
)
def test_what_is_missed_is_told(found: figures.Results, name: str) -> None:
    """One row is one too many at any seed."""
    assert [each for each, figure in select_held_figures(found).items() if not figure.holds] == [name]


def test_peers_losses_are_told_by_seed() -> None:
    """With how much changed meanwhile."""
    [figure] = [each for each in figures.figures(results()) if each.name == "dlt, 1,000,000 orders: rows lost"]
    assert (figure.value, figure.how) == (300, "the worst; seed 2: 300 of 900 changes")


def test_the_chart_has_a_line_for_each_contender() -> None:
    """One point for each size."""
    series = json.loads(figures.as_json(results()))
    assert set(series) == {"ours", "dlt"}
    assert series["dlt"]["lost"] == [300, 300]
    assert series["ours"]["rate"] == [5_000, 50_000]
