"""What history shows of an activity whose payloads cannot be decrypted any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.api.sdk.v1 import UserMetadata

from infra import history
from infra.interceptors import FAULT_TYPE
from infra.payloads import PayloadDamaged, PayloadKeyMissing


@pytest.mark.parametrize("error", [PayloadKeyMissing("2025"), PayloadDamaged("It is not what was written.")])
async def test_an_activity_whose_key_is_gone_has_neither_summary_nor_fault(error: Exception) -> None:
    """The others of the page are shown."""

    async def decode(*_: Any) -> None:
        raise error

    engine: Any = SimpleNamespace(data_converter=SimpleNamespace(decode=decode))
    scheduled = ActivityTaskScheduledEventAttributes(activity_id="1")
    scheduled.activity_type.name = "download_probe"
    event = HistoryEvent(
        event_id=5,
        event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        user_metadata=UserMetadata(summary=Payload(data=b"?")),
        activity_task_scheduled_event_attributes=scheduled,
    )
    failure = Failure(application_failure_info=ApplicationFailureInfo(type=FAULT_TYPE))
    later = history._OutcomesFromLaterEvents(
        ended={5: (history.ActivityState.FAILED, history._to_datetime(event.event_time), failure)}
    )
    record = await history._build_activity_record(engine, event, later, {})
    assert (record.activity, record.summary, record.fault) == ("download_probe", "", None)
    assert record.state is history.ActivityState.FAILED
