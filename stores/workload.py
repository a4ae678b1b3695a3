"""Workloads from rows that count by project."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import asyncpg

from domain.workload import ConcernKind, ItemCount, Workload, Workloads, sum_workloads

Row: TypeAlias = "asyncpg.Record"


def read_workloads(rows: Iterable[Row]) -> Workloads:
    """Workloads from rows with `project_id` and, for `running`, `waiting` and `failed`, a count and its `…_at`."""
    found: defaultdict[str, list[Workload]] = defaultdict(list)
    for row in rows:
        running, waiting, failed = (
            ItemCount(row[kind], row[f"{kind}_at"]) for kind in ("running", "waiting", "failed")
        )
        found[row["project_id"]].append(Workload(running, waiting, failed))
    return {project: sum_workloads(parts) for project, parts in found.items()}


def read_concerns(trouble: ConcernKind, rows: Iterable[Row]) -> Workloads:
    """One concern of each project, from rows with `project_id` and `count`."""
    return {row["project_id"]: Workload(concerns=+Counter({trouble: row["count"]})) for row in rows}
