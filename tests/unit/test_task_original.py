"""Requests of flowSvr's own client: every member that it sends is taken, has its meaning or none, as documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from api.tasks.requests import (
    CREATE_IGNORES,
    SET_IGNORES,
    CreateTaskRequest,
    GetTaskQuery,
    HoldTasksQuery,
    HoldTasksRequest,
    ListTasksQuery,
    SetTaskResultRequest,
    TaskResult,
)
from tests.support.original_worker import ZEROS

REFERENCE = Path(__file__).parents[2] / "docs/reference/tasks.md"
ANY_VALUE: list[Any] = [None, 0, -1, 7.5, "", "x", True, [1], {"a": 1}]
CREATE_KEEPS = ("user_id", "task_id", "task_type", "task_stage", "priority", "context")
SET_KEEPS = ("task_id", "task_type", "task_stage", "status", "crt_retry_num", "schedule_log", "context")


def create(**given: Any) -> Any:
    """A new task as the client sends it."""
    body = {"task_data": {**ZEROS, "task_type": "lark", **given}}
    return CreateTaskRequest.model_validate_json(json.dumps(body), strict=True).task_data


def build_result(**given: Any) -> TaskResult:
    """A result as the client sends it."""
    body = {"task_data": {**ZEROS, "task_id": "t", "task_type": "lark", **given}}
    return SetTaskResultRequest.model_validate_json(json.dumps(body), strict=True).task_data


def test_each_member_has_an_effect_or_is_on_the_list() -> None:
    """None is forgotten, and none is on both sides."""
    assert sorted(CREATE_IGNORES + CREATE_KEEPS) == sorted(ZEROS)
    assert sorted(SET_IGNORES + SET_KEEPS) == sorted(ZEROS)


def test_the_lists_are_documented() -> None:
    """The reference names the members that have no effect, and no others."""
    rows = dict(re.findall(r"^\| `POST /v1/(\w+)` ignores \| (.*) \|$", REFERENCE.read_text(), re.MULTILINE))
    named = {route: tuple(re.findall(r"`(\w+)`", row)) for route, row in rows.items()}
    assert named == {"create_task": CREATE_IGNORES, "set_task": SET_IGNORES}


def test_a_task_with_zeros_everywhere_is_a_task() -> None:
    """They mean the same as fields that are left out."""
    new = create(context="{}", task_stage="sendmsg")
    assert (new.task_id, new.user_id, new.priority, new.task_stage, new.task_content) == ("", "", 0, "sendmsg", "{}")


@pytest.mark.parametrize("name", CREATE_IGNORES)
@pytest.mark.parametrize("value", ANY_VALUE, ids=repr)
def test_what_a_create_ignores_changes_nothing(name: str, value: Any) -> None:
    """Whatever its value is."""
    new, plain = create(**{name: value}), create()
    assert all(getattr(new, field) == getattr(plain, field) for field in ("task_type", "task_stage", "priority"))


@pytest.mark.parametrize("name", SET_IGNORES)
@pytest.mark.parametrize("value", ANY_VALUE, ids=repr)
def test_what_a_set_ignores_changes_nothing(name: str, value: Any) -> None:
    """Whatever its value is."""
    said = build_result(status=3, **{name: value})
    assert (said.status, said.lease, said.crt_retry_num, said.task_stage) == (3, None, None, None)


def test_zeros_of_the_original_leave_a_task_as_it_is() -> None:
    """Its client sends them for whatever it does not know; a status of 0 keeps the task running."""
    said = build_result()
    kept = (said.crt_retry_num, said.task_stage, said.task_content, said.schedule_log)
    assert (said.status, kept, said.is_from_flowsvr_client) == (2, (None, None, None, None), True)


def test_zeros_of_others_are_written() -> None:
    """Who sends neither order_time nor create_time is not the original."""
    body = {"task_id": "t", "status": 1, "task_stage": "", "context": "", "crt_retry_num": 0, "schedule_log": ""}
    said = TaskResult.model_validate(body)
    kept = (said.crt_retry_num, said.task_stage, said.task_content, said.schedule_log)
    assert (kept, said.is_from_flowsvr_client) == ((0, "", "", ""), False)
    with pytest.raises(ValidationError):
        TaskResult.model_validate({"task_id": "t", "status": 0})


def test_limits_of_the_original_are_taken() -> None:
    """Zero is left out, and too many are as many as there may be."""
    assert HoldTasksRequest.model_validate({"task_type": "lark", "limit": 0}).limit == 0
    assert HoldTasksQuery.model_validate({"task_type": "lark", "limit": "5000"}).limit == 5_000
    wanted = [ListTasksQuery.model_validate({"taskType": "lark", "limit": limit}) for limit in ("0", "7", "99999")]
    assert [each.effective_limit for each in wanted] == [2_000, 7, 2_000]
    assert (
        GetTaskQuery.model_validate({"taskId": "t"}).task_id
        == GetTaskQuery.model_validate({"task_id": "t"}).task_id
        == "t"
    )
