"""From the log into four modules over HTTP, with every fault they can have: in the end all four agree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from temporalio.client import Client

from domain.addresses import names
from domain.addresses.activity_models import CarriedCycleTotals, ComparisonIdInput, ModuleComparisonCounts
from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssScenario
from sims.oss.server import Oss, running_oss
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.support import modules as module_peers
from tests.support.modules import call_fault
from tests.support.pace import measure_pace
from tests.support.worker import running_worker
from workflows.addresses.cycle import AddressCycle
from workflows.addresses.maintenance import ModuleComparison

pytestmark = pytest.mark.stack

MESSAGES, UPRNS, RETIRING = 300, 25, 0.2
SEEDS = (1, 2, 3)
FAULTS = (
    call_fault(OssAction.FAIL, fraction=0.15, times=2),
    call_fault(OssAction.FAIL, fraction=0.05, modules=frozenset({"wfm"})),
    call_fault(OssAction.LOST, fraction=0.1),
    call_fault(OssAction.ERROR, fraction=0.1),
    call_fault(OssAction.RESET, modules=frozenset({"od"}), skip=10, times=20),
    call_fault(OssAction.LATE, fraction=0.02, seconds=3),
)


class ChangePublisher:
    """A source that knows its addresses: swaps take ids along, and later messages name what a UPRN has by then."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._addresses: dict[int, int] = {}
        self._ids = count(1_000)

    def messages(self, number: int) -> list[DeliveredMessage]:
        """Messages, some of them twice, in another order than they were sent."""
        sent = [DeliveredMessage(*self._message(str(place))) for place in range(number)]
        sent += self._dice.sample(sent, number // 10)
        return sorted(sent, key=lambda each: int(each.message.message_id) + self._dice.uniform(0, 6))

    def _message(self, number: str) -> tuple[Topic, PublishedMessage]:
        topic, payload = self._draw_change()
        return topic, PublishedMessage(message_id=number, data=msgspec.json.encode(payload))

    def _draw_change(self) -> tuple[Topic, dict[str, Any]]:
        dice, known = self._dice, self._addresses
        match dice.choices(("write", "swap", "delete"), (7, 2 if len(known) > 1 else 0, 1 if known else 0))[0]:
            case "swap":
                one, other = dice.sample(sorted(known), 2)
                known[one], known[other] = known[other], known[one]
                retires = dice.random() < RETIRING
                if retires:
                    del known[one]
                return Topic.SWAP, {"uprn_1": one, "uprn_2": other, "delete_after": retires}
            case "delete":
                uprn = dice.choice(sorted(known))
                return Topic.DELETE, {"uprn": uprn, "address_id": known.pop(uprn)}
            case _:
                uprn = dice.randint(1, UPRNS)
                address_id = known.setdefault(uprn, next(self._ids))
                return Topic.CREATE_UPDATE, {
                    "uprn": uprn,
                    "address_id": address_id,
                    "record": {"street": dice.random()},
                }


@pytest.mark.parametrize(("seed", "batch"), [*zip(SEEDS, (1, 500, 1), strict=True)])
@pytest.mark.long
async def test_modules_agree_when_all_are_well_again(
    settings: Settings, database: Database, tmp_path: Path, seed: int, batch: int
) -> None:
    """Whatever was lost, late, broken or away before; and nothing is left that a retry would mend."""
    dice = random.Random(seed)
    async with running_oss(tmp_path) as oss:
        oss.set(OssScenario(seed=seed, rules=FAULTS))
        peers = module_peers.module_settings(
            # Less than a late answer takes, and enough for the others on a slow machine.
            oss.base,
            tmp_path,
            batch=batch,
            retries=1,
            timeout_seconds=min(2.5, measure_pace()),
            breaker_seconds=0,
        )
        addresses = peers.model_copy(update={"group_messages_max": 20, "threshold": 60})
        async with running_worker(settings.model_copy(update={"addresses": addresses}), [names.QUEUE]) as running:
            engine = running.services.engine
            incoming, inbox = ChangePublisher(dice).messages(MESSAGES), MessageLogAndQuarantineWriter(database, 10_000)
            for start in range(0, len(incoming), 50):
                await inbox.store_messages_or_quarantine_them(incoming[start : start + 50])
                await _cycle(engine)
            oss.set(OssScenario())
            left = await _retry_until_settled(engine, database)
            report: ModuleComparisonCounts = await engine.execute_workflow(
                ModuleComparison.run,
                ComparisonIdInput(comparison_id="1"),
                id=names.build_comparison_workflow_id("1"),
                task_queue=names.QUEUE,
            )

    assert report.different == 0
    assert all(state == _states(oss)[0] for state in _states(oss))
    assert {reason for reason in left if reason not in ("missing", "behind", "overtaken")} == set()
    async with database.connection() as connection:
        assert await connection.fetchval(_TAKEN_IN) == MESSAGES
    assert report.compared > 0


_TAKEN_IN = """
    SELECT (SELECT count(*) FROM im_infi_addr_sync_log) + (SELECT count(*) FROM im_infi_addr_sync_log_his)
    """
_GIVEN_UP = "SELECT coalesce(wait_reason ->> 'kind', proc_flag) FROM im_infi_addr_sync_log ORDER BY id"
_RETRY = "UPDATE im_infi_addr_sync_log SET retry_times = 0, next_attempt_at = now() WHERE proc_flag = 'N'"


async def _cycle(engine: Client) -> None:
    """Cycles until nothing is left to do."""
    await engine.execute_workflow(
        AddressCycle.run, CarriedCycleTotals(), id=names.CYCLE_SCHEDULE, task_queue=names.QUEUE
    )


async def _retry_until_settled(engine: Client, database: Database) -> list[str]:
    """What an operator does until it mends no more; why the rest is not done."""
    left: Sequence[str] | None = None
    while True:
        async with database.connection() as connection:
            await connection.execute(_RETRY)
        await _cycle(engine)
        async with database.connection() as connection:
            now = [row[0] for row in await connection.fetch(_GIVEN_UP)]
        if now == left:
            return now
        left = now


def _states(oss: Oss) -> list[dict[int, tuple[int, Any]]]:
    return [
        {uprn: (each.address_id, each.record) for uprn, each in module.live().items()}
        for module in oss.modules.values()
    ]
