"""Models of the same object: tables, rows, lane messages, the API and the client agree field by field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from api.tasks import requests, responses
from api.tasks.storage import CachedTaskType
from domain.tasks.messages import CreateOperation, LaneHead, LaneStatus, SetOperation, Task, TaskTypeRules
from haulage.tasks import models
from stores.tables.tasks import ArchivedTask, OpenLaneHead, TaskType
from stores.tasks import archive
from stores.tasks.lanes import OpenLaneRow
from stores.tasks.types import TaskTypeChange, TaskTypeCounts, TaskTypeRow


def names_of(model: Any) -> set[str]:
    """The fields of a model of any kind."""
    if issubclass(model, BaseModel):
        return set(model.model_fields)
    if issubclass(model, (TaskTypeRules, Task, CreateOperation, SetOperation, LaneHead, LaneStatus)):
        return set(model.__struct_fields__)
    return {field.name for field in fields(model)}


TYPE_NAMES = {"type", "project_id", "name", "begin_pos", "end_pos", "version"}
"""Fields that the server adds to a configuration; responses rename the positions."""
TIMES = {"created_at", "changed_at"}
TASK_ALIASES = {"task_stage", "priority", "context"}
"""Fields of responses under the second name that flowSvr has for them."""


@pytest.mark.parametrize(
    ("left", "right", "only_left", "only_right"),
    [
        pytest.param(TaskType, TaskTypeRow, TIMES | {"removed_at"}, (), id="table of types and the row that is read"),
        pytest.param(TaskTypeRow, CachedTaskType, (), {"rules", "read_at"}, id="row and cache of a type"),
        pytest.param(
            TaskTypeRow, TaskTypeChange, TYPE_NAMES | {"paused"}, (), id="row and what a registration may change"
        ),
        pytest.param(
            requests.TaskTypeConfiguration, TaskTypeChange, {"task_type"}, (), id="registration and the change of a row"
        ),
        pytest.param(
            TaskTypeRow,
            responses.TaskTypeResponse,
            TYPE_NAMES,
            {"task_type", "schedule_begin_pos", "schedule_end_pos"},
            id="row and response of a type",
        ),
        pytest.param(
            TaskTypeRow,
            TaskTypeRules,
            (TYPE_NAMES | {"schedule_interval"}) - {"version"},
            {"lane_max_tasks", "removed"},
            id="row of a type and the rules of its lanes",
        ),
        pytest.param(
            TaskTypeCounts,
            responses.TaskTypeFiguresResponse,
            {"next_order_time"},
            {*responses.TaskTypeResponse.model_fields, "project_id", "oldest_due_seconds"},
            id="counters and response of a type",
        ),
        pytest.param(
            OpenLaneHead, OpenLaneRow, {"type", "number", "updated_at"}, (), id="table of heads and the row of a lane"
        ),
        pytest.param(
            OpenLaneRow, responses.LaneResponse, {"is_full"}, {"workflow_id", "full"}, id="row and response of a lane"
        ),
        pytest.param(
            OpenLaneHead,
            LaneHead,
            {"type", "pos", "is_full", "updated_at"},
            {"full", "archived", "fill_percent"},
            id="table of heads and the head of a lane",
        ),
        pytest.param(
            LaneHead,
            LaneStatus,
            {"number", "next_order_time", "next_lease_end", "fill_percent"},
            {"version", "paused", "bytes"},
            id="head and status of a lane",
        ),
        pytest.param(
            Task,
            ArchivedTask,
            {"key", "log", "flags", "lease_end"},
            {"task_id", "type", "pos", "schedule_log", "refs"},
            id="task of a lane and of the archive",
        ),
        pytest.param(
            responses.TaskTypeResponse,
            models.RegisteredType,
            {"schedule_begin_pos", "schedule_end_pos"},
            (),
            id="response of a type and the client's",
        ),
        pytest.param(
            requests.TaskTypeConfiguration, models.TaskType, (), (), id="registration of a type and the client's"
        ),
        pytest.param(requests.NewTask, models.NewTask, requests.CREATE_IGNORES, (), id="new task and the client's"),
        pytest.param(
            requests.TaskResult,
            models.TaskResult,
            {*requests.SET_IGNORES, "task_type"},
            (),
            id="result and the client's",
        ),
        pytest.param(responses.TaskResponse, models.Task, TASK_ALIASES, (), id="response of a task and the client's"),
        pytest.param(
            responses.HeldTaskResponse, models.HeldTask, TASK_ALIASES, (), id="response of a held task and the client's"
        ),
        pytest.param(
            responses.TaskDetailsResponse,
            models.TaskDetails,
            TASK_ALIASES | {"workflow_id"},
            (),
            id="details of a task and the client's",
        ),
        pytest.param(responses.EarlierAttemptResponse, models.EndedTaskAttempt, (), (), id="attempt and the client's"),
        pytest.param(responses.TaskOutcome, models.TaskEntryOutcome, (), (), id="outcome and the client's"),
        pytest.param(
            responses.TaskCountsResponse,
            models.TaskCountsByState,
            {"code", "msg", "counts"},
            (),
            id="counts and the client's",
        ),
    ],
)
def test_models_of_one_thing_have_the_same_fields(
    left: type, right: type, only_left: Iterable[str], only_right: Iterable[str]
) -> None:
    """Except for those that are named here with the pair."""
    assert names_of(left) - names_of(right) == set(only_left)
    assert names_of(right) - names_of(left) == set(only_right)


def test_all_columns_of_the_archive_are_read_and_written() -> None:
    """Type and position come from the lane that archives."""
    assert set(archive._COLUMNS) == names_of(ArchivedTask) - {"type", "pos"}


@pytest.mark.parametrize(
    ("operation", "request_model"),
    [(CreateOperation, requests.NewTask), (SetOperation, requests.TaskResult)],
    ids=["create", "set"],
)
def test_operations_of_a_lane_have_the_fields_of_requests(operation: type, request_model: type[BaseModel]) -> None:
    """Some under shorter names."""
    renamed = {
        "task_id": "key",
        "task_content": "content",
        "task_priority": "priority",
        "task_stage": "stage",
        "schedule_log": "log",
        "start_time": "start",
    }
    ignored = (
        {*requests.CREATE_IGNORES, "task_type"}
        if operation is CreateOperation
        else {*requests.SET_IGNORES, "task_type"}
    )
    sent = {renamed.get(name, name) for name in request_model.model_fields if name not in ignored}
    assert sent <= names_of(operation)
    assert names_of(operation) - sent <= {"flags", "failed", "is_unleased"}
