"""A sink as Debezium's for JDBC is: a buffer of up to 500 messages, reduced by key, flushed to all modules, a commit.

Written to be fast where that allows it: the modules are flushed side by side, and a swap, which a key does not know,
goes along in its place; only what lies before it is not reduced by what comes after it. What a module did not take is
tried again after all others. It neither repeats what one module alone failed, nor reports what was superseded, nor
keeps a history.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.peers.addresses import log
from bench.peers.addresses.log import MODULES, MessageLog, ModuleCalls, Operation
from bench.peers.meter import Meter


async def main(given: argparse.Namespace) -> None:
    """Fill the log, sink it, say what it took."""
    messages = await MessageLog.create(given.database, given.messages)
    async with log.session(given.token) as session:
        modules = ModuleCalls(session, json.loads(given.modules))
        meter = Meter()
        total = 0
        while done := await _pass(messages, modules, given.batch):
            total += done
        log.say(meter.read(), modules, total)
    await messages.close()


async def _pass(messages: MessageLog, modules: ModuleCalls, batch: int) -> int:
    done = 0
    async for buffer in messages.chunks():
        kept = reduce_buffer(buffer)
        answers = await log.side_by_side({module: _flush(modules, module, kept, batch) for module in MODULES})
        left = {each["seq"] for each in kept}
        places = {each["seq"]: place for place, each in enumerate(kept)}
        ids = [each["seq"] for each in buffer]
        settled = {module: [id_ not in left or answers[module][places[id_]] for id_ in ids] for module in MODULES}
        done += await messages.write(ids, settled)
    return done


async def _flush(modules: ModuleCalls, module: str, operations: Sequence[Operation], batch: int) -> list[bool]:
    if batch == 1:
        return [await modules.one(module, each) for each in operations]
    return await modules.many(module, operations)


def reduce_buffer(buffer: Sequence[Operation]) -> list[Operation]:
    """The last write of each UPRN, unless a swap lies between."""
    kept: dict[int, Operation] = {}
    last: dict[int, int] = {}
    for operation in buffer:
        uprn, seq = operation["uprn"], operation["seq"]
        if operation["kind"] == "swap":
            for each in (uprn, operation["uprn_2"]):
                last.pop(each, None)
        else:
            kept.pop(last.get(uprn, 0), None)
            last[uprn] = seq
        kept[seq] = operation
    return list(kept.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--messages", type=Path, required=True)
    parser.add_argument("--modules", required=True, help="JSON: the base address of each")
    parser.add_argument("--token", required=True)
    parser.add_argument("--batch", type=int, default=log.CHUNK)
    uvloop.run(main(parser.parse_args()))
