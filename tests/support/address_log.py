"""The log of addresses of a deployment, and what its four modules made of it: the share of one test."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg

from domain.addresses import messages
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, OperationOutcome
from tests.support.address_oracle import ModuleOracle, build_operation
from tests.support.deployment import PUSH_SECRET, SIGNED, Deployment
from tests.support.waiting import eventually

PATIENCE_SECONDS = 300.0

Rows = dict[int, asyncpg.Record]


@dataclass(frozen=True)
class AddressLog:
    """The messages about some UPRNs, which only one test writes.

    Args:
        uprns: Tests of a deployment share its log and its modules, and each has UPRNs of its own.
    """

    deployment: Deployment
    uprns: range

    async def resume(self) -> None:
        """Let cycles run; a deployment rests between tests."""
        await self.deployment.as_admin("POST", "/v1/addresses/cycle/resume", json=SIGNED)

    async def push(self, number: str, topic: Topic, payload: Mapping[str, Any]) -> None:
        """Push a message until it is taken."""
        data = base64.b64encode(json.dumps(payload).encode()).decode()
        envelope = {"message": {"messageId": number, "data": data}, "subscription": "projects/p/subscriptions/s"}
        url = f"{self.deployment.api}/v1/addresses/events/{topic}?token={PUSH_SECRET}"

        async def is_taken() -> bool:
            try:
                async with aiohttp.ClientSession() as session, session.post(url, json=envelope) as answer:
                    return answer.status == 204
            except aiohttp.ClientError:
                return False

        await eventually(is_taken)

    async def rows(self) -> Rows:
        """Return the messages by their ids, from the log and its history as they are at one moment."""
        connection = await self.deployment.connect_database()
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                live = await connection.fetch("SELECT * FROM im_infi_addr_sync_log")
                done = await connection.fetch("SELECT * FROM im_infi_addr_sync_log_his")
        finally:
            await connection.close()
        assert not {row["id"] for row in live} & {row["id"] for row in done}
        return {row["id"]: row for row in (*live, *done) if row["uprn_1"] in self.uprns}

    async def settle(self) -> Rows:
        """Wait until every message is done."""

        async def list_done() -> Rows:
            rows = await self.rows()
            return rows if {row["proc_flag"] for row in rows.values()} == {"Y"} else {}

        return await eventually(list_done, timeout=PATIENCE_SECONDS)

    def list_applied(self, module: Module, rows: Rows) -> list[str]:
        """Return which of these messages a module applied, in its order."""
        return [op_id for op_id in self.deployment.oss.modules[module].list_applied() if int(op_id) in rows]

    def states(self, module: Module) -> dict[int, tuple[int, Any]]:
        """Return what a module has of each UPRN."""
        live = self.deployment.oss.modules[module].live()
        return {uprn: (each.address_id, each.record) for uprn, each in live.items() if uprn in self.uprns}

    def compute_expected(self, op_ids: Collection[str], rows: Rows) -> dict[int, tuple[int, Any]]:
        """Return what plain Python makes of messages in the order in which a module applied them."""
        oracle = ModuleOracle()
        for op_id in op_ids:
            row = rows[int(op_id)]
            said = messages.parse_payload(Topic(row["topic"]), json.loads(row["payload"]))
            assert oracle.apply(build_operation(row["id"], said)) is OperationOutcome.APPLIED, (op_id, oracle)
        return oracle.live
