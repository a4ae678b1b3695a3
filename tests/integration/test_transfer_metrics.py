"""What an operator sees of transfers: targets by state and reason, durations, and one log line at the end of a job."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from sims.gse.scenario import GseAction, GseRule, GseScenario
from tests.support.gse import Gse
from tests.support.transfers import Transfers, job_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

NAMES = {
    "succeeded": ("haulage_transfer_targets_ended_total", {"state": "Success", "reason": ""}),
    "failed": ("haulage_transfer_targets_ended_total", {"state": "Failed", "reason": "gse_code"}),
    "joined": ("haulage_transfer_joins_total", {"outcome": "joined"}),
    "sizes": ("haulage_transfer_job_targets_count", {}),
    "durations": ("haulage_transfer_job_seconds_count", {"state": "Failed"}),
}


def read_metrics() -> dict[str, float]:
    """Return the metrics of this process by the names above."""
    return {name: REGISTRY.get_sample_value(metric, labels) or 0.0 for name, (metric, labels) in NAMES.items()}


async def test_the_end_of_a_job_is_counted_and_logged(transfers: Transfers, gse: Gse) -> None:
    """Two hosts have the file, one does not."""
    gse.world.set(GseScenario(rules=(GseRule(action=GseAction.FAIL, agent="agent-2", code=104),)))
    before = read_metrics()
    with capture_logs() as logs:
        task_ids = await transfers.join_many(["agent-1", "agent-2", "agent-3"])
        job_id = job_of(await transfers.wait_for_end(task_ids[0]))
        await transfers.wait_for_job_end(job_id)
        # The log line follows the end that the API shows, and the metrics come before it.
        await eventually(lambda: any(line["event"] == "transfer_job_ended" for line in logs))
    after = read_metrics()

    assert {name: after[name] - before[name] for name in NAMES} == {
        "succeeded": 2,
        "failed": 1,
        "joined": 3,
        "sizes": 1,
        "durations": 1,
    }
    assert REGISTRY.get_sample_value("haulage_gse_answers_total", {"call": "async_transfer_file", "code": "0"})
    assert REGISTRY.get_sample_value(
        "haulage_service_call_seconds_count", {"service": "gse", "call": "async_transfer_file"}
    )
    [line] = [line for line in logs if line["event"] == "transfer_job_ended"]
    assert (line["job_id"], line["state"]) == (job_id, "Failed")
    assert (line["targets"], line["causes"]) == ({"success": 2, "failed": 1}, {"gse_code": 1})
    assert 0 < line["seconds"] < 600
