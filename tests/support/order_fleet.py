"""Platforms whose orders a deployment fetches, and what became of them: for tests of its processes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import asyncpg

from sims.platforms import checker
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import PlatformScenario
from tests.support.deployment import PATIENCE_SECONDS, Deployment, write_credentials
from tests.support.orders import SIGNED, since
from tests.support.waiting import eventually

SPAN_SECONDS = 7_200
INTERVAL_SECONDS = 200


@dataclass(frozen=True)
class Fleet:
    """The deployment, and a project whose platforms it reads."""

    deployment: Deployment
    project_id: str

    async def begin(
        self, number: str, scenario: PlatformScenario, *, notify_url: str | None = None, **options: Any
    ) -> Platform:
        """Set up a platform; its schedule does the rest.

        Args:
            notify_url: The receiver of notifications.
            options: Replace what its configuration says.
        """
        platforms, ask = self.deployment.platforms, self.deployment.as_admin
        platform = platforms.add(number, scenario)
        write_credentials(self.deployment, "shop", platform.dialect.credentials(platform.tokens.good))
        capability = PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 10})})
        body = {
            "project_id": self.project_id,
            "kind": "plain",
            "shop": "shop",
            "base_url": platforms.url(number),
            "capability": capability.model_dump(mode="json"),
            "notify_url": notify_url,
            "is_paused": True,
        }
        config = {
            "credentials": "shop",
            "starttime": since(platform, seconds=SPAN_SECONDS),
            "interval": INTERVAL_SECONDS,
            "settle_lag": 60,
            "retryintv": 0.5,
            "retries": 20,
            "threads": 2,
            "sweep_after": 0,
        }
        await ask("PUT", f"/v1/platforms/{number}", json=body)
        await ask("PUT", f"/v1/platforms/{number}/config", json={**config, **options})
        await ask("POST", f"/v1/platforms/{number}/resume", json=SIGNED)
        await ask("POST", f"/v1/platforms/{number}/trigger")
        return platform

    async def share_done(self, number: str) -> float:
        """Return which share of the first time is read; while the database is away, ask until it is back."""

        async def count() -> list[asyncpg.Record]:
            try:
                return await self.deployment.fetch(
                    "SELECT count(*) AS n FROM order_slices WHERE platform = $1 AND done_at IS NOT NULL", number
                )
            except (OSError, asyncpg.PostgresError) as error:
                raise AssertionError(str(error)) from error

        share: float = (await eventually(count))[0]["n"] * INTERVAL_SECONDS / SPAN_SECONDS
        return share

    async def wait_until_done(self, number: str, share: float) -> None:
        """Wait until this share of the first time is read; where it is not, the failure tells what is open."""

        async def is_done() -> bool:
            return await self.share_done(number) >= share

        await self._wait_or_describe(number, is_done)

    async def complete(self, number: str) -> None:
        """Wait until all that has settled is in; a schedule that a kill has delayed is triggered."""

        async def is_whole() -> bool:
            shown = await self.deployment.as_admin("GET", f"/v1/platforms/{number}")
            if shown["gaps"]:
                await self.deployment.as_admin("POST", f"/v1/platforms/{number}/trigger")
            return bool(shown["claimed_to"]) and not shown["gaps"] and not shown["slices_open"]

        await self._wait_or_describe(number, is_whole)

    async def findings(self, number: str) -> checker.Findings:
        """List what is wrong up to `complete_to`."""
        fetch = self.deployment.fetch
        shown = (await fetch("SELECT starts_at, complete_to FROM order_platforms WHERE platform = $1", number))[0]
        ledger = self.deployment.platforms.by_number[number].ledger()
        first, last = (int(shown[name].timestamp()) * 1_000_000 for name in ("starts_at", "complete_to"))
        expected = checker.truth(ledger, from_us=first, until_us=last)
        rows = await fetch("SELECT order_id, modified_at, version FROM orders WHERE platform = $1", number)
        stored = [checker.copy_of(row["order_id"], row["modified_at"].timestamp(), row["version"]) for row in rows]
        return checker.check(expected, stored, known=checker.truth(ledger))

    async def _wait_or_describe(self, number: str, predicate: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        try:
            await eventually(predicate, PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self._describe_open_work(number)}") from error

    async def _describe_open_work(self, number: str) -> str:
        """Describe the open slices of a platform, its open workflows, and what they wait for."""
        slices = await self.deployment.fetch(
            "SELECT start_at, track, holder, attempts, failed_at, fault FROM order_slices"
            " WHERE platform = $1 AND done_at IS NULL",
            number,
        )
        engine = await self.deployment.engine()
        lines = [f"processes: {self.deployment.pids}", *(str(dict(row)) for row in slices)]
        async for each in engine.list_workflows("ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'order'"):
            raw = (await engine.get_workflow_handle(each.id).describe()).raw_description
            lines.append(f"{each.id} {raw.pending_workflow_task} {list(raw.pending_activities)}")
        return "\n".join(lines)
