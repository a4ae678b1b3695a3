"""What both peers share: the seed's log in a database of their own, and calls to the modules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import msgspec

MODULES = ("ed", "im", "wfm", "od")
CHUNK = 500
SWAP = "swapDeleteInfinityAddress"
DELETE = "deleteInfinityAddress"
SETTLED = frozenset({"applied", "logical", "already", "stale"})

_SCHEMA = """
    CREATE TABLE im_infi_addr_sync_log (
        id bigserial PRIMARY KEY, topic varchar(50) NOT NULL, uprn_1 bigint NOT NULL, uprn_2 bigint,
        msg_no varchar(32) NOT NULL, payload json, proc_flag char(1), proc_update_date timestamptz,
        retry_times smallint NOT NULL DEFAULT 0, ed_ack char(1), im_ack char(1), wfm_ack char(1), od_ack char(1),
        ed_ack_date timestamptz, im_ack_date timestamptz, wfm_ack_date timestamptz, od_ack_date timestamptz,
        createdat timestamptz NOT NULL DEFAULT now(), UNIQUE (topic, msg_no));
    CREATE INDEX ON im_infi_addr_sync_log (id) WHERE proc_flag IS DISTINCT FROM 'Y';
"""
_COLUMNS = ("topic", "uprn_1", "uprn_2", "msg_no", "payload")
_NEXT = """
    SELECT id, topic, payload FROM im_infi_addr_sync_log
    WHERE id > $1 AND proc_flag IS DISTINCT FROM 'Y' ORDER BY id LIMIT $2
"""
_WRITE = """
    UPDATE im_infi_addr_sync_log AS log
    SET ed_ack = ed, im_ack = im, wfm_ack = wfm, od_ack = od, ed_ack_date = now(), im_ack_date = now(),
        wfm_ack_date = now(), od_ack_date = now(), proc_update_date = now(),
        proc_flag = CASE WHEN ed || im || wfm || od = 'YYYY' THEN 'Y' ELSE 'N' END
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[]) AS told (id, ed, im, wfm, od)
    WHERE log.id = told.id
"""

Operation = dict[str, Any]


class MessageLog:
    """The messages, in the order of their ids."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection
        self._after = 0

    @classmethod
    async def create(cls, address: str, messages: Path) -> MessageLog:
        """A new log with the messages of a file, a JSON list of topic and payload in each line."""
        connection = await asyncpg.connect(address)
        await connection.execute(_SCHEMA)
        rows = [_row(number, *msgspec.json.decode(line)) for number, line in enumerate(messages.open("rb"), 1)]
        await connection.copy_records_to_table("im_infi_addr_sync_log", records=rows, columns=_COLUMNS)
        await connection.execute("VACUUM ANALYZE im_infi_addr_sync_log")
        return cls(connection)

    async def chunks(self) -> AsyncIterator[list[Operation]]:
        """What is not done, once from the first to the last."""
        after = 0
        while rows := await self._connection.fetch(_NEXT, after, CHUNK):
            after = rows[-1]["id"]
            yield [_operation(row["id"], row["topic"], msgspec.json.decode(row["payload"])) for row in rows]

    async def write(self, ids: Sequence[int], settled: Mapping[str, Sequence[bool]]) -> int:
        """Say what the modules answered, and commit; how many messages are done."""
        flags = [["Y" if each else "N" for each in settled[module]] for module in MODULES]
        await self._connection.execute(_WRITE, ids, *flags)
        return sum(all(each) for each in zip(*(settled[module] for module in MODULES), strict=True))

    async def close(self) -> None:
        """Let the database go."""
        await self._connection.close()


class ModuleCalls:
    """The four modules, and how often they were called."""

    def __init__(self, session: aiohttp.ClientSession, bases: Mapping[str, str]) -> None:
        self._session = session
        self._bases = bases
        self.calls = 0

    async def one(self, module: str, operation: Operation) -> bool:
        """Apply an operation; whether the module has it now."""
        url = f"{self._bases[module]}/operations/{operation['op_id']}"
        return _is_settled(await self._call("PUT", url, operation))

    async def many(self, module: str, operations: Sequence[Operation]) -> list[bool]:
        """Apply operations in their order, in one call."""
        body = {"operations": operations}
        answer = await self._call("POST", f"{self._bases[module]}/operations", body)
        return [_is_settled(each) for each in answer["results"]]

    async def _call(self, method: str, url: str, body: object) -> Any:
        self.calls += 1
        async with self._session.request(method, url, data=msgspec.json.encode(body)) as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read())


def session(token: str) -> aiohttp.ClientSession:
    """Connections that stay open."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return aiohttp.ClientSession(
        headers=headers, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    )


def say(took: Mapping[str, float], modules: ModuleCalls, done: int) -> None:
    """One line for the bench."""
    print(json.dumps({**took, "calls": modules.calls, "done": done}))


async def side_by_side(answers: Mapping[str, Any]) -> dict[str, list[bool]]:
    """What all four modules say, asked at the same time."""
    return dict(zip(answers, await asyncio.gather(*answers.values()), strict=True))


def _is_settled(result: Mapping[str, Any]) -> bool:
    return result["outcome"] in SETTLED


def _row(number: int, topic: str, said: Mapping[str, Any]) -> tuple[str, int, int | None, str, str]:
    uprn_1 = said["uprn_1"] if topic == SWAP else said["uprn"]
    return topic, uprn_1, said.get("uprn_2"), str(number), json.dumps(said)


def _operation(log_id: int, topic: str, said: Mapping[str, Any]) -> Operation:
    known: Operation = {"op_id": str(log_id), "seq": log_id}
    if topic == SWAP:
        swapped = {"uprn": said["uprn_1"], "uprn_2": said["uprn_2"], "delete_after": said["delete_after"]}
        return known | {"kind": "swap"} | swapped
    if topic == DELETE:
        return known | {"kind": "delete", "uprn": said["uprn"]}
    return known | {"kind": "upsert", **{name: said[name] for name in ("uprn", "address_id", "record")}}
