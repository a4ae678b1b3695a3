"""Several at once: each gets an outcome of its own, and one that fails takes none of the others with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from api.tasks.answers import Outcome, Outcomes
from api.tasks.envelope import Code, code_of, failure
from domain.faults import Fault
from infra import log, outages

Item = TypeVar("Item")

_log = log.get(__name__)


async def each_of(items: Sequence[Item], do: Callable[[Item], Awaitable[str]]) -> Outcomes:
    """What became of each, by what was done with it; doing gives the task's id."""
    results = await asyncio.gather(*(_outcome(do(item)) for item in items))
    failed = next((result for result in results if result.code), None)
    if failed is None:
        return Outcomes(results=results)
    return Outcomes(code=failed.code, msg=failed.msg, results=results)


async def _outcome(doing: Awaitable[str]) -> Outcome:
    try:
        return Outcome(task_id=await doing)
    except Fault as fault:
        return Outcome(**failure(code_of(fault.record.code), fault.record.sentence))
    except Exception as error:
        if not outages.is_outage(error):
            raise
        _log.warning("part_unavailable", error=repr(error))
        return Outcome(**failure(Code.PROCESS, outages.describe(error)))
