"""Which examples of a test every change must pass; the others are marked `long`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_long_except(examples: Iterable[Any], often: Collection[Any]) -> list[Any]:
    """Return the examples; those that are not in `often` are left to `make test-whole`."""
    listed = list(examples)
    missing = [each for each in often if each not in listed]
    assert not missing, f"There is no example {missing}; there are {listed}."
    return [each if each in often else pytest.param(each, marks=pytest.mark.long) for each in listed]


def combine_and_mark_long_except(*examples: Iterable[Any], often: Collection[tuple[Any, ...]]) -> list[Any]:
    """Return all combinations of several arguments' examples; those not in `often` are left to `make test-whole`."""
    combined = list(itertools.product(*examples))
    missing = [each for each in often if each not in combined]
    assert not missing, f"There is no combination {missing}; there are {combined}."
    return [pytest.param(*each, marks=() if each in often else pytest.mark.long) for each in combined]
