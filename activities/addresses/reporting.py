"""The drift report: all four modules compared UPRN by UPRN, in a workbook."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import msgspec
from temporalio import activity

from activities.addresses import scanning
from activities.addresses.scanning import Pages
from domain.addresses import drift, names
from domain.addresses.drift import Difference, DriftOrder, DriftReport, Kind, Sides
from domain.addresses.names import CONTENT_TYPE
from domain.addresses.operations import Module
from infra.database import Database
from infra.heartbeats import beating
from infra.objects import ObjectStore
from stores.addresses import drift as log_drift
from stores.addresses.drift import Known

SHOWN_MAX: Final = 50_000
"""Differences that are kept and written down; more are counted."""
SECOND_LOOKS: Final = 100
DIGEST_CHARACTERS: Final = 12


@dataclass(slots=True)
class Findings:
    """What a scan found so far."""

    compared: int = 0
    live: Counter[Module] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    different: int = 0
    shown: list[Difference] = field(default_factory=list)

    def see(self, uprn: int, sides: Sides) -> None:
        """One more UPRN."""
        self.compared += 1
        self.live.update(module for module, side in sides.items() if side)
        if difference := drift.compare(uprn, sides):
            self.add(difference)

    def add(self, difference: Difference) -> None:
        """One more difference."""
        self.different += 1
        self.kinds.update(difference.kinds)
        if len(self.shown) < SHOWN_MAX:
            self.shown.append(difference)

    def drop(self, difference: Difference) -> None:
        """It was none: it was under way while we looked."""
        self.different -= 1
        self.kinds.subtract(difference.kinds)


class DriftReporting:
    """Compares modules."""

    def __init__(self, database: Database, objects: ObjectStore, modules: Pages) -> None:
        self._database = database
        self._objects = objects
        self._modules = modules

    @activity.defn(name="address_drift")
    async def report(self, order: DriftOrder) -> DriftReport:
        """Compare all modules, look twice where they differ, and write it down."""
        findings = Findings()
        async with beating(lambda: [findings.compared, findings.different]):
            async with aclosing(scanning.scan(self._modules)) as scanned:
                async for uprn, sides in scanned:
                    findings.see(uprn, sides)
            await self._look_again(findings)
            known = await log_drift.find_messages(self._database, [difference.uprn for difference in findings.shown])
            return await self._written(order, findings, known)

    async def _look_again(self, findings: Findings) -> None:
        """Modules were read while cycles ran: what agrees by now did not differ."""
        seen, findings.shown = findings.shown, []
        for start in range(0, len(seen), SECOND_LOOKS):
            before = seen[start : start + SECOND_LOOKS]
            now = await scanning.looks(self._modules, [each.uprn for each in before])
            for difference in before:
                findings.drop(difference)
                if still := drift.compare(difference.uprn, now[difference.uprn]):
                    findings.add(still)

    async def _written(self, order: DriftOrder, findings: Findings, known: Sequence[Known]) -> DriftReport:
        made_at = await self._database.now()
        key = names.drift_key(order.report)
        report = DriftReport(
            report=order.report,
            made_at=made_at,
            compared=findings.compared,
            live={module: findings.live[module] for module in Module},
            different=findings.different,
            **{kind.value: findings.kinds[kind] for kind in Kind},
            under_way=sum(each.open is not None for each in known),
            shown=len(findings.shown),
            key=key,
        )
        book = await asyncio.to_thread(render_workbook, report, findings.shown, known)
        await self._objects.put(key, book, content_type=CONTENT_TYPE)
        # Last: whoever finds it finds the workbook too.
        await self._objects.put(names.drift_manifest(key), report.model_dump_json().encode())
        return report


def render_workbook(report: DriftReport, shown: Sequence[Difference], known: Sequence[Known]) -> bytes:
    """Return the figures, and the addresses that differ with what each module has, as a workbook."""
    # Workflows import activities for their signatures, and must not pay for pandas and Arrow.
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    from excel.book import render_tables  # noqa: PLC0415

    figures = report.model_dump(mode="json", exclude={"key", "live"})
    figures |= {f"live in {module}": count for module, count in report.live.items()}
    addresses = pd.DataFrame(
        [(each.uprn, ", ".join(each.kinds)) for each in shown], columns=["uprn", "differs in"], dtype="object"
    )
    messages = pd.DataFrame([(each.last, each.open) for each in known], columns=_MESSAGES, dtype="object")
    sides = pd.DataFrame(
        [
            (difference.uprn, f"{module} {what}", value)
            for difference in shown
            for module, side in difference.sides.items()
            for what, value in (
                ("address_id", side.address_id if side else None),
                ("record", side.digest[:DIGEST_CHARACTERS] if side else None),
            )
        ],
        columns=["uprn", "column", "value"],
        dtype="object",
    )
    by_module = sides.pivot(index="uprn", columns="column", values="value").reindex(columns=_BY_MODULE)
    rows = addresses.join(messages).merge(by_module, left_on="uprn", right_index=True, how="left")
    # As text: Excel keeps 15 digits of a number.
    texts = rows[["uprn", "differs in", *_BY_MODULE, *_MESSAGES]].astype("string")
    return render_tables(
        {
            "drift": pa.table(
                {"figure": list(figures), "value": [msgspec.json.encode(value) for value in figures.values()]}
            ),
            "addresses": pa.Table.from_pandas(texts, preserve_index=False),
        }
    )


_BY_MODULE: Final = [f"{module} {what}" for module in Module for what in ("address_id", "record")]
_MESSAGES: Final = ["last message", "open message"]
