"""Each field of a request about addresses is honoured: two of its values lead to outcomes that differ.

A new field needs a case: a field without one fails here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from api.addresses.actions import FailedMessagesRequest, SkipMessageRequest
from api.addresses.inbox import DiscardMessagesRequest, MendMessageRequest
from api.addresses.logical_deletes import PurgeAddressesRequest
from api.http.models import OperatorRequest
from domain.addresses.messages import Topic
from infra.settings import Settings
from tests.support.addresses import Addresses, running_addresses
from tests.support.waiting import eventually
from tests.worlds.addresses import request_cases
from tests.worlds.addresses.request_cases import (
    ACTION_CASES,
    CASES_BY_MODEL,
    LIST_CASES,
    MIDDLE,
    NEXT,
    PATH_MODELS,
    PUSH_CASES,
    Case,
)

SECRET = "a-secret-of-options"
BY = {"who": "ann", "reason": "a case wants it"}
CREATE = {"uprn": 81, "address_id": 1, "record": {}}


@pytest.mark.parametrize("model", CASES_BY_MODEL, ids=lambda model: f"{model.__module__}.{model.__name__}")
def test_every_field_has_a_case(model: type[BaseModel]) -> None:
    """A field without a case may have no effect."""
    assert set(model.model_fields) == set(CASES_BY_MODEL[model])


def test_every_request_is_here() -> None:
    """One that a route of addresses takes has its cases, or only names what it is about."""
    assert request_cases.list_models() == set(CASES_BY_MODEL) | set(PATH_MODELS)
    assert [len(model.model_fields) for model in PATH_MODELS] == [1] * len(PATH_MODELS)


@dataclass
class PausedAddresses:
    """Addresses with messages in all states, while no cycle runs."""

    addresses: Addresses
    middle: datetime

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Look into the database, or change it."""
        async with self.addresses.services.database.connection() as connection:
            return list(await connection.fetch(statement, *values))

    async def page(self, path: str, query: Mapping[str, Any]) -> Any:
        """One page of a list, or the answer to a question."""
        sent = {name: self.value(value) for name, value in query.items() if value is not None}
        if sent.get("cursor") == NEXT:
            sent["cursor"] = (await self.page(path, {**query, "cursor": None}))["next_cursor"]
        reply = await self.addresses.ask("GET", path, params=sent)
        assert reply.status == 200, reply.body
        return reply.body

    def value(self, value: Any) -> Any:
        """Return what is sent for a value of a case."""
        return self.middle.isoformat() if value == MIDDLE else value

    async def reset(self) -> None:
        """Have five messages in the log, failed and given up, in two modules, for two reasons; one in the history."""
        await self.sql(
            "TRUNCATE im_infi_addr_sync_log, im_infi_addr_sync_log_his, addr_sync_keys, addr_audit, "
            "addr_sync_quarantine, addr_logical_deletes RESTART IDENTITY"
        )
        await self._add("swap", Topic.SWAP, {"uprn_1": 1, "uprn_2": 9}, "missing", retries=2, module="ed")
        await self._add("create", Topic.CREATE_UPDATE, {**CREATE, "uprn": 2}, "failed", retries=1, module="od")
        await self._add("delete", Topic.DELETE, {"uprn": 3}, "failed", retries=2, module="od")
        await self._add("other", Topic.DELETE, {"uprn": 1}, "failed", retries=2, module="ed")
        await self._add("more", Topic.CREATE_UPDATE, {**CREATE, "uprn": 4}, "failed", retries=1, module="od")
        await self.sql(
            "WITH first AS (SELECT min(id) AS id FROM im_infi_addr_sync_log) UPDATE im_infi_addr_sync_log AS log "
            "SET createdat = $1::timestamptz + (log.id - first.id - 2) * interval '1 hour' FROM first",
            self.middle,
        )
        done = await self.addresses.publish(Topic.DELETE, uprn=1)
        await self.sql("UPDATE im_infi_addr_sync_log SET proc_flag = 'Y' WHERE id = $1", done)
        await self.sql(
            "WITH gone AS (DELETE FROM im_infi_addr_sync_log WHERE id = $1 RETURNING *) "
            "INSERT INTO im_infi_addr_sync_log_his SELECT *, now() FROM gone",
            done,
        )
        await self.sql(
            "INSERT INTO addr_sync_quarantine (topic, msg_no, raw, raw_bytes, reason, mended_as, mended_at) VALUES "
            "($1, 'q1', '', 0, 'r', NULL, NULL), ($2, 'q2', '', 0, 'r', NULL, NULL), ($2, 'q3', '', 0, 'r', 1, now())",
            Topic.SWAP,
            Topic.DELETE,
        )
        await self.sql(
            "INSERT INTO addr_logical_deletes "
            "(address_id, uprn, log_id, od_flag, wfm_flag, ed_flag, removable_at, purged_at) VALUES "
            "(1001, 1, 1, 'N', 'N', 'N', now(), NULL), (1002, 2, 2, 'N', 'N', 'N', NULL, NULL), "
            "(1003, 3, 3, 'N', 'N', 'N', NULL, now())"
        )

    async def _add(
        self, number: str, topic: Topic, said: Mapping[str, Any], kind: str, *, retries: int, module: str
    ) -> None:
        id_ = await self.addresses.publish(topic, **said)
        await self.sql(
            f"UPDATE im_infi_addr_sync_log SET {module}_ack = 'N', proc_flag = 'N', retry_times = $2, msg_no = $3,"  # noqa: S608 - names of ours
            " next_attempt_at = now() + interval '1 day', wait_reason = jsonb_build_object('kind', $4::text)"
            " WHERE id = $1",
            id_,
            retries,
            number,
            kind,
        )

    async def ids(self) -> list[int]:
        """Return the ids of the messages in the log, in order."""
        return [row["id"] for row in await self.sql("SELECT id FROM im_infi_addr_sync_log ORDER BY id")]

    async def outcome(self) -> Any:
        """Return the state of all messages, and the audit."""
        log = await self.sql("SELECT msg_no, topic, uprn_1, proc_flag, retry_times, reason FROM im_infi_addr_sync_log")
        audit = await self.sql("SELECT who, action, reason, address_id FROM addr_audit")
        unreadable = await self.sql("SELECT msg_no, mended_as IS NULL FROM addr_sync_quarantine")
        purged = await self.sql("SELECT address_id FROM addr_logical_deletes WHERE purged_at IS NOT NULL")
        # What is published in a test has a number that differs each time.
        return [
            sorted(map(str, (tuple(row)[(table is log and row["proc_flag"] is None) :] for row in table)))
            for table in (log, audit, unreadable, purged)
        ]


@pytest.fixture
async def paused_addresses(settings: Settings, tmp_path: Path) -> AsyncIterator[PausedAddresses]:
    """API, worker and modules; cycles are paused."""
    push = settings.addresses.push.model_copy(update={"secret": SecretStr(SECRET)})
    async with running_addresses(settings, tmp_path, failed_cycles_max=2, push=push) as addresses:
        assert (await addresses.ask("POST", "cycle/pause", json=BY)).status == 200
        async with addresses.services.database.connection() as connection:
            now: datetime = await connection.fetchval("SELECT now() - interval '1 day'")
        yield PausedAddresses(addresses, now)


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_question_makes_a_difference(paused_addresses: PausedAddresses) -> None:
    """The lists of messages, deletes and versions."""
    await paused_addresses.reset()
    for threshold in (1, 2, 3):
        change = BY | {"options": {"threshold": threshold, "failed_cycles_max": 2}}
        assert (await paused_addresses.addresses.ask("PUT", "config", json=change)).status == 200
    unheeded = []
    for path, (_, cases) in LIST_CASES.items():
        for name, case in cases.items():
            one, other = [
                await paused_addresses.page(path, {**case.beside, name: value}) for value in (case.one, case.other)
            ]
            unheeded += [f"{path} {name}"] if one == other else []
        assert await paused_addresses.page(path, {}) == await paused_addresses.page(path, {})
    assert unheeded == []


async def act(paused_addresses: PausedAddresses, method: str, path: str, body: Mapping[str, Any]) -> Any:
    """Act on what there is, and return what came of it."""
    await paused_addresses.reset()
    ids = await paused_addresses.ids()
    quarantined = [row["id"] for row in await paused_addresses.sql("SELECT id FROM addr_sync_quarantine ORDER BY id")]
    if "ids" in body:
        places = quarantined if path.startswith("quarantine") else ids
        body = {**body, "ids": [places[place - 1] for place in body["ids"]]}
    if path.endswith("/skip") and "{id}" in path:
        await paused_addresses.sql(
            "UPDATE im_infi_addr_sync_log SET im_ack = 'Y' WHERE id = $1 AND $2", ids[0], "who" in body
        )
    place = quarantined[1] if path.startswith("quarantine") else ids[0]
    sent = {name: paused_addresses.value(value) for name, value in body.items() if value is not None}
    reply = await paused_addresses.addresses.ask(method, path.format(id=place), json=sent)
    if path.endswith(":purge"):

        async def is_purged() -> bool:
            told = await paused_addresses.addresses.ask("GET", f"logical-deletes/purges/{reply.body['purge_id']}")
            return bool(told.body["state"] == "succeeded")

        await eventually(is_purged)
    return await paused_addresses.outcome()


WAYS: Mapping[type[BaseModel], tuple[tuple[str, str, Mapping[str, Any]], ...]] = {
    OperatorRequest: (
        ("POST", "messages/{id}/retry", {}),
        ("POST", "messages/{id}/retry-chain", {}),
        ("POST", "cycle/pause", {}),
    ),
    SkipMessageRequest: (("POST", "messages/{id}/skip", {"though_touched": True}),),
    FailedMessagesRequest: (("POST", "messages:retry", {}), ("POST", "messages:skip", {})),
    DiscardMessagesRequest: (("POST", "quarantine:discard", {"ids": [1]}),),
    MendMessageRequest: (("POST", "quarantine/{id}/mend", {"text": '{"uprn": 71}'}),),
    PurgeAddressesRequest: (("POST", "logical-deletes:purge", {"address_ids": [1_001]}),),
}
"""How each action is asked for, and what is sent beside its case."""


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.parametrize("model", ACTION_CASES, ids=lambda model: model.__name__)
async def test_every_field_of_an_action_makes_a_difference(
    paused_addresses: PausedAddresses, model: type[BaseModel]
) -> None:
    """What becomes of messages, and the audit."""
    change = BY | {"options": {"failed_cycles_max": 2}}
    assert (await paused_addresses.addresses.ask("PUT", "config", json=change)).status == 200
    unheeded = []
    for method, path, beside in WAYS[model]:
        for name, case in ACTION_CASES[model].items():
            bodies = [{**BY, **beside, **case.beside, name: value} for value in (case.one, case.other)]
            one, other = [await act(paused_addresses, method, path, body) for body in bodies]
            unheeded += [f"{path} {name}"] if one == other else []
        assert await act(paused_addresses, method, path, {**BY, **beside}) == await act(
            paused_addresses, method, path, {**BY, **beside}
        )
    assert unheeded == []


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_push_makes_a_difference(paused_addresses: PausedAddresses) -> None:
    """What is in the log then."""
    unheeded = []
    for cases in PUSH_CASES.values():
        for name, case in cases.items():
            one, other = [await push(paused_addresses, name, case, value) for value in (case.one, case.other)]
            unheeded += [name] if one == other else []
    assert unheeded == []


async def push(paused_addresses: PausedAddresses, name: str, case: Case, value: Any) -> Any:
    """Push a message with this value; return what is in the log, and when that was published."""
    await paused_addresses.reset()
    data, message = json.dumps(CREATE), {"messageId": "m-0", "publishTime": "2026-01-01T00:00:00Z", **case.beside}
    topic, token = Topic.CREATE_UPDATE, SECRET
    match name:
        case "topic":
            topic = value
        case "token":
            token = SECRET if value == case.one else value
        case "message":
            message |= value
        case "message_id":
            message["messageId"] = value
        case "publish_time":
            message["publishTime"] = value
        case _:
            data = value
    envelope = {"message": {**message, "data": base64.b64encode(data.encode()).decode()}}
    reply = await paused_addresses.addresses.api_client.ask(
        "POST", f"/v1/addresses/events/{topic}", json=envelope, params={"token": token}
    )
    assert reply.status in (204, 401), reply.body
    rows = await paused_addresses.sql(
        "SELECT msg_no, topic, uprn_1, published_at FROM im_infi_addr_sync_log WHERE proc_flag IS NULL"
    )
    return sorted(map(str, map(tuple, rows)))
