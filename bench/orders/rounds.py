"""One round: a contender fetches while orders change, everything comes to rest, it fetches again, and is checked."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.orders.contenders import Contender
from bench.orders.surroundings import Platforms
from sims.platforms import checker
from sims.platforms.clock import MICRO


@dataclass(frozen=True)
class Round:
    """What one contender did with one platform."""

    seed: int
    rows: int
    """Orders that the first fetch was to bring."""
    seconds: float
    """Of the first fetch, like all but the losses."""
    cpu_seconds: float
    serving_seconds: float
    requests: int
    changes: int
    """How often an order changed before the platform came to rest."""
    lost: int
    """Orders that are missing after the second fetch, or not as they were last."""
    duplicated: int
    """Orders that were listed twice unchanged and are stored twice."""
    invented: int

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of processors for a row, of its own processes and of the database and engine that it uses."""
        return (self.cpu_seconds + self.serving_seconds) / self.rows * 1e6

    @property
    def requests_per_thousand(self) -> float:
        """Requests for 1,000 rows."""
        return self.requests / self.rows * 1_000


async def run(contender: Contender, platforms: Platforms, orders: int, seed: int) -> Round:
    """On a platform of its own that begins as everybody's with this seed."""
    platform = await platforms.begin(orders, seed)
    with tempfile.TemporaryDirectory() as folder:
        async with contender.fetching(platform, Path(folder)) as fetch:
            first = await fetch.run()
            stats = await platform.stats()
            until_us = round(first.covered_until.timestamp() * MICRO)
            rows = len(checker.truth(await platform.ledger(), until_us=until_us))
            await platform.freeze()
            await fetch.run()
            ledger = await platform.ledger()
            findings = checker.check(checker.truth(ledger), await fetch.copies())
            changes = (await platform.stats())["changes"]
    await platform.forget()
    return Round(
        seed=seed,
        rows=rows,
        seconds=first.seconds,
        cpu_seconds=first.cpu_seconds,
        serving_seconds=first.serving_seconds,
        requests=stats["requests"],
        changes=changes,
        lost=findings.missing,
        duplicated=len(findings.duplicated),
        invented=len(findings.invented),
    )
