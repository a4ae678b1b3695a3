"""The plain consumer: message after message, module after module, a commit; or so with ordered batches of messages.

It reads its log ahead and keeps its connections. What a module did not take is tried again after all others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import uvloop

from bench.peers.addresses import log
from bench.peers.addresses.log import MODULES, MessageLog, ModuleCalls, Operation
from bench.peers.meter import Meter


async def main(given: argparse.Namespace) -> None:
    """Fill the log, consume it, say what it took."""
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
    """Everything that is not done, in order."""
    done = 0
    async for chunk in messages.chunks():
        for start in range(0, len(chunk), batch):
            done += await _apply(messages, modules, chunk[start : start + batch])
    return done


async def _apply(messages: MessageLog, modules: ModuleCalls, operations: list[Operation]) -> int:
    settled: dict[str, list[bool]] = {}
    for module in MODULES:
        if len(operations) == 1:
            settled[module] = [await modules.one(module, operations[0])]
        else:
            settled[module] = await modules.many(module, operations)
    return await messages.write([each["seq"] for each in operations], settled)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--messages", type=Path, required=True)
    parser.add_argument("--modules", required=True, help="JSON: the base address of each")
    parser.add_argument("--token", required=True)
    parser.add_argument("--batch", type=int, default=1)
    uvloop.run(main(parser.parse_args()))
