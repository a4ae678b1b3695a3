"""A lane can decode every request that the API accepts, with each field at its largest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import ValidationError
from msgspec.structs import asdict

from api.tasks import storage
from api.tasks.lanes import validate_and_measure_operation
from api.tasks.requests import NewTask, TaskResult, TaskTypeConfiguration
from domain.tasks import messages
from domain.tasks.messages import TEXT_MAX_BYTES, SetOperation, TaskTypeRules

KEY = "0" * 32


def limits(model: type[Any], field: str) -> list[int]:
    """The least and the greatest number that a field takes; or both truth values."""
    schema = model.model_json_schema()["properties"][field]
    if {"type": "boolean"} in schema.get("anyOf", []):
        return [False, True]
    numbers = next((each for each in schema.get("anyOf", []) if each.get("type") == "integer"), schema)
    return [numbers["minimum"], numbers["maximum"]]


@pytest.mark.parametrize("field", sorted(asdict(TaskTypeRules()).keys() & TaskTypeConfiguration.model_fields.keys()))
def test_every_configuration_can_be_taught(field: str) -> None:
    """The bounds of requests are within those of the rules."""
    for value in limits(TaskTypeConfiguration, field):
        config = TaskTypeConfiguration.model_validate({"task_type": "video", field: value})
        assert validate_and_measure_operation(TaskTypeRules(**{field: getattr(config, field)}))


def test_every_task_can_be_created() -> None:
    """With the longest names and any priority."""
    for priority in limits(NewTask, "task_priority"):
        for stage, user in (("s" * 32, "u" * 128), ("段" * 10, "用" * 42)):
            new = NewTask.model_validate(
                {"task_type": "video", "user_id": user, "task_stage": stage, "task_priority": priority}
            )
            assert validate_and_measure_operation(
                messages.CreateOperation(KEY, new.user_id, "", new.priority, new.task_stage)
            )


def test_every_result_can_be_set() -> None:
    """With any status, lease and count."""
    for status in limits(TaskResult, "status"):
        for lease in limits(TaskResult, "lease"):
            for retries in limits(TaskResult, "crt_retry_num"):
                said = TaskResult.model_validate(
                    {"task_id": KEY, "status": status, "lease": lease, "crt_retry_num": retries}
                )
                assert validate_and_measure_operation(SetOperation(KEY, said.status, said.lease, said.crt_retry_num))


@pytest.mark.parametrize("character", ["x", '"', "\\", "\x01", "é", "很", "😀"])
def test_a_text_stays_in_its_lane_only_where_it_fits(character: str) -> None:
    """It is measured as JSON writes it: with quotes and escapes."""
    lengths = [length for length in range(1, 600) if not storage.is_too_long_for_lane(character * length)]
    longest = character * max(lengths)
    assert lengths == list(range(1, len(lengths) + 1))
    assert validate_and_measure_operation(messages.CreateOperation(KEY, "", longest))
    assert len(msgspec.json.encode(longest)) <= TEXT_MAX_BYTES < len(msgspec.json.encode(longest + character))


def test_what_a_lane_could_not_read_is_refused_alone() -> None:
    """It must not spoil the group of others."""
    with pytest.raises(ValidationError):
        validate_and_measure_operation(messages.CreateOperation(KEY, "", "x" * 600))
