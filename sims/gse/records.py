"""The records of a task of a stand-in GSE: one for the upload and one for each target, in the shape of the scenario."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

from sims.gse.scenario import GseScenario, Shape
from sims.gse.tasks import DONE, RUNNING, FileSpot, Key, SimulatedTarget, SimulatedTask

Entry = dict[str, Any]


def is_empty(task: SimulatedTask, shape: Shape) -> bool:
    """Return whether there are no results yet."""
    return task.polls <= shape.empty_polls


def build_entries(task: SimulatedTask, scenario: GseScenario, now: float, agents: Collection[Key]) -> list[Entry]:
    """Return the records of these agents, or of all if none is named."""
    shape = scenario.shape
    keys = agents or [(task.source.agent, task.source.container), *task.targets]
    records = list(_iterate_records(task, shape, now, keys))
    if shape.older_too:
        records = [record for each in records for record in (each, each | {"error_code": RUNNING, "error_msg": ""})]
    if shape.text_codes:
        records = [each | {"error_code": str(each["error_code"])} for each in records]
    if shape.duplicates:
        records *= 2
    if shape.shuffled:
        random.Random(f"{scenario.seed}/{task.id}/{task.polls}").shuffle(records)
    return records


def _iterate_records(task: SimulatedTask, shape: Shape, now: float, keys: Collection[Key]) -> Iterator[Entry]:
    if shape.upload_record and (task.source.agent, task.source.container) in keys:
        yield _upload(task, shape, now)
    hides = task.halted and not shape.records_after_failed_upload
    for key in keys:
        target = task.targets.get(key)
        if target and target.is_reported and not (hides and target.ended is None):
            yield _download(task, target, shape, now)
    if shape.unknown_target:
        stranger = SimulatedTarget(FileSpot("nobody-asked-for-this", "", "/", "x"), task.created, code=DONE, ended=now)
        yield _download(task, stranger, shape, now)


def _upload(task: SimulatedTask, shape: Shape, now: float) -> Entry:
    content = _source(task) | _course(task, shape, task.upload_code, task.upload_ended, now)
    return _entry(task.upload_code, task.upload_message, content, shape, "upload", 0)


def _download(task: SimulatedTask, target: SimulatedTarget, shape: Shape, now: float) -> Entry:
    spot = target.spot
    content = {
        **_source(task),
        "dest_agent_id": spot.agent,
        "dest_container_id": spot.container,
        "dest_file_dir": spot.folder,
        "dest_file_name": spot.name,
        **_course(task, shape, target.code, target.ended, now, target.due),
    }
    return _entry(target.code, target.message, content, shape, "download", 1)


def _entry(code: int | str, message: str, content: Entry, shape: Shape, kind: str, mode: int) -> Entry:
    if shape.types:
        content["type"] = kind
    if shape.modes:
        content["mode"] = mode
    return {"error_code": code, "error_msg": message, "content": content}


def _source(task: SimulatedTask) -> Entry:
    return {
        "source_agent_id": task.source.agent,
        "source_container_id": task.source.container,
        "source_file_dir": task.source.folder,
        "source_file_name": task.source.name,
    }


def _course(
    task: SimulatedTask, shape: Shape, code: int | str, ended: float | None, now: float, due: float | None = None
) -> Entry:
    if code == DONE:
        progress = shape.progress_at_success
    else:
        progress = min(99, int(100 * (now - task.created) / max(0.001, (due or now + 1) - task.created)))
    took = max(0.001, (ended or now) - task.created)
    return {
        "progress": progress,
        "speed": int(task.bytes * progress / 100 / took / 1024),
        "size": task.bytes,
        "status": 1 if code == RUNNING else 0,
        "status_info": "running" if code == RUNNING else "finished",
        "start_time": int(task.created_at * 1000),
        "end_time": 0 if ended is None else int((task.created_at + took) * 1000),
    }
