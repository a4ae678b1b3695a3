"""Options of cycles and modules, set through the API for all worlds that are played at that time."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from domain.addresses.operations import Module
from tests.worlds import pairwise
from tests.worlds.pairwise import Options, Row

TIMEOUT_SECONDS = 1.5
OPTIONS: Options = {
    "threshold": ("10000", "60", "25"),
    "minimum_share": ("0.1", "0", "0.33"),
    "failed_cycles_max": ("3", "1", "2"),
    "retry_pause_seconds": ("0", "0.2"),
    "group_messages_max": ("500", "3"),
    "step_concurrency": ("4", "1"),
    "auto_purge": ("no", "yes"),
    # of each module
    "batch": ("500", "1", "7"),
    "concurrency": ("8", "1"),
    "call_retries": ("0", "1"),
    "breaker_failures": ("5", "1"),
    "breaker_seconds": ("0.5", "2"),
}
_OF_MODULES = {
    "batch": "batch",
    "concurrency": "concurrency",
    "call_retries": "retries",
    "breaker_failures": "breaker_failures",
    "breaker_seconds": "breaker_seconds",
}
WORLDS_OF_A_ROW = 18
"""Worlds of neighbouring seeds that have the same options, and are played side by side."""


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    return pairwise.pairwise_rows(OPTIONS)


def draw_row(seed: int) -> dict[str, str]:
    """Return the options of a seed's world; rows follow each other, so that few worlds see all of them."""
    rows = pairwise_rows()
    return dict(rows[seed // WORLDS_OF_A_ROW % len(rows)])


def plain_row() -> dict[str, str]:
    """Return the plainest value of every option."""
    return dict(pairwise.plain_row(OPTIONS))


def make_config(row: Row) -> dict[str, Any]:
    """Return the body of `PUT /v1/addresses/config` that sets a row."""
    own = {name: json.loads(value) for name, value in row.items() if name not in {"auto_purge", *_OF_MODULES}}
    module = {name: json.loads(row[option]) for option, name in _OF_MODULES.items()}
    module["timeout_seconds"] = TIMEOUT_SECONDS
    return {**own, "auto_purge": row["auto_purge"] == "yes", "modules": dict.fromkeys(map(str, Module), module)}
