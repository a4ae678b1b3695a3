"""A module that keeps its addresses in memory: `python -m bench.addresses.module FILE` serves one on 127.0.0.1.

The reference handler on SQLite would use several times the processor that any contender uses. This one holds the same
contract, as the unit tests compare, and speaks just enough HTTP for keep-alive clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

HOST: Final = "127.0.0.1"
APPLIED, LOGICAL, ALREADY, STALE, MISSING = "applied", "logical", "already", "stale", "missing"

Record: TypeAlias = msgspec.Raw
Entry: TypeAlias = tuple[int, Record]
"""An id and a record."""


class Content(msgspec.Struct):
    """What a module has at first, and what is asked for in the end."""

    live: dict[int, tuple[int, Record]] = {}
    """By UPRN."""
    busy: set[int] = set()
    """Ids of addresses with orders in flight."""


class Operation(msgspec.Struct):
    """One change."""

    op_id: str
    seq: int
    kind: str
    uprn: int
    uprn_2: int = 0
    address_id: int = 0
    record: Record = msgspec.Raw(b"{}")
    delete_after: bool = False


class Batch(msgspec.Struct):
    """Changes in their order."""

    operations: list[Operation]


class Lookup(msgspec.Struct):
    """UPRNs and operations to look up."""

    uprns: list[int]
    op_ids: list[str]


class AddressIds(msgspec.Struct):
    """Addresses that may have orders in flight."""

    address_ids: list[int]


class Result(msgspec.Struct, omit_defaults=True):
    """What an operation did."""

    op_id: str
    outcome: str
    was: str | None = None
    missing: list[int] = []
    address_id: int | None = None
    logical_address_id: int | None = None
    in_flight: bool = False


class MemoryModule:
    """The addresses of one module."""

    def __init__(self, content: Content) -> None:
        self.live: dict[int, Entry] = dict(content.live)
        self.logical: dict[int, tuple[int, Record]] = {}
        """By address id: the seq of the delete and the record."""
        self._busy = content.busy
        self._uses = Counter(address_id for address_id, _ in self.live.values())
        self._results: dict[str, Result] = {}
        self._swap_seq: dict[int, int] = {}
        self._record_seq: dict[int, int] = {}

    def apply(self, operation: Operation) -> Result:
        """Apply an operation, unless it was applied before."""
        if before := self._results.get(operation.op_id):
            return self._build_repeated_result(operation, before)
        if operation.kind == "purge":
            return self._purge(operation)
        is_swap = operation.kind == "swap"
        marks = self._swap_seq if is_swap else self._record_seq
        uprns = (operation.uprn, operation.uprn_2) if is_swap else (operation.uprn,)
        if any(marks.get(uprn, 0) >= operation.seq for uprn in uprns):
            return Result(operation.op_id, STALE)
        result = self._swap(operation) if is_swap else self._write(operation)
        if result.outcome in (APPLIED, LOGICAL):
            self._results[operation.op_id] = result
            for uprn in uprns:
                marks[uprn] = operation.seq
            if operation.delete_after:
                self._record_seq[operation.uprn] = max(self._record_seq.get(operation.uprn, 0), operation.seq)
        return result

    def look_up(self, lookup: Lookup) -> dict[str, list[Any]]:
        """Return which UPRNs have an address, and which operations took effect."""
        return {
            "live": [uprn for uprn in lookup.uprns if uprn in self.live],
            "applied": [op_id for op_id in lookup.op_ids if op_id in self._results],
        }

    def list_in_flight(self, address_ids: Iterable[int]) -> list[int]:
        """Return the addresses that have orders in flight."""
        return [each for each in address_ids if each in self._busy]

    def _build_repeated_result(self, operation: Operation, before: Result) -> Result:
        kept = before.logical_address_id
        is_kept = kept is not None and self.logical.get(kept, (0,))[0] == operation.seq
        return Result(
            operation.op_id,
            ALREADY,
            was=before.outcome,
            address_id=before.address_id,
            logical_address_id=kept if is_kept else None,
            in_flight=before.in_flight and is_kept,
        )

    def _swap(self, operation: Operation) -> Result:
        one, other, live = operation.uprn, operation.uprn_2, self.live
        if one == other:
            return Result(operation.op_id, "refused")
        if missing := [uprn for uprn in (one, other) if uprn not in live]:
            return Result(operation.op_id, MISSING, missing=missing)
        live[one], live[other] = live[other], live[one]
        kept = self._take_away(one, operation.seq) if operation.delete_after else None
        return Result(operation.op_id, APPLIED, logical_address_id=kept, in_flight=kept is not None)

    def _write(self, operation: Operation) -> Result:
        uprn, address_id = operation.uprn, operation.address_id
        current = self.live.get(uprn)
        if operation.kind == "delete":
            kept = self._take_away(uprn, operation.seq) if current else None
            outcome = APPLIED if kept is None else LOGICAL
            return Result(operation.op_id, outcome, None, [], current and current[0], kept, kept is not None)
        kept = None
        if current is None or current[0] != address_id:
            kept = self._take_away(uprn, operation.seq) if current else None
            self._uses[address_id] += 1
        self.logical.pop(address_id, None)
        self.live[uprn] = address_id, operation.record
        return Result(operation.op_id, APPLIED, None, [], address_id, kept, kept is not None)

    def _purge(self, operation: Operation) -> Result:
        address_id = operation.address_id
        deleted = self.logical.get(address_id)
        if (deleted is None and self._uses[address_id] > 0) or (deleted and deleted[0] > operation.seq):
            return Result(operation.op_id, STALE, address_id=address_id)
        if deleted and address_id in self._busy:
            return Result(operation.op_id, LOGICAL, None, [], address_id, address_id, in_flight=True)
        self.logical.pop(address_id, None)
        return Result(operation.op_id, APPLIED, address_id=address_id)

    def _take_away(self, uprn: int, seq: int) -> int | None:
        """Remove the address of a UPRN; return its id if it is kept logically deleted."""
        address_id, record = self.live.pop(uprn)
        self._uses[address_id] -= 1
        if address_id not in self._busy or self._uses[address_id] > 0:
            return None
        self.logical[address_id] = seq, record
        return address_id


_BATCH: Final = msgspec.json.Decoder(Batch)
_OPERATION: Final = msgspec.json.Decoder(Operation)
_LOOKUP: Final = msgspec.json.Decoder(Lookup)
_ADDRESS_IDS: Final = msgspec.json.Decoder(AddressIds)
_CONTENT: Final = msgspec.json.Decoder(Content)
_ENCODER: Final = msgspec.json.Encoder()


def load_module(file: Path) -> MemoryModule:
    """Return a module with the content of a file."""
    return MemoryModule(_CONTENT.decode(file.read_bytes()))


class _Connection(asyncio.Protocol):
    """One connection of a client: a request, its answer, and the next request."""

    def __init__(self, module: MemoryModule) -> None:
        self._module = module
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head_end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:head_end])
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            end = head_end + 4 + int(length or 0)
            if len(self._received) < end:
                return
            body = bytes(self._received[head_end + 4 : end])
            del self._received[:end]
            answer = self._answer(head.split(b" ", 2)[1].decode(), body)
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
                + answer
            )

    def _answer(self, path: str, body: bytes) -> bytes:
        module = self._module
        match path.rsplit("/", 1)[1].partition("?")[0]:
            case "operations":
                results = [module.apply(each) for each in _BATCH.decode(body).operations]
                return _ENCODER.encode({"results": results})
            case "lookup":
                return _ENCODER.encode(module.look_up(_LOOKUP.decode(body)))
            case "in-flight":
                return _ENCODER.encode({"in_flight": module.list_in_flight(_ADDRESS_IDS.decode(body).address_ids)})
            case "content":
                return _ENCODER.encode(Content(module.live))
            case _:
                return _ENCODER.encode(module.apply(_OPERATION.decode(body)))


async def _serve(file: Path) -> None:
    module = load_module(file)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(module), HOST, 0)
    print(json.dumps({"url": f"http://{HOST}:{server.sockets[0].getsockname()[1]}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
