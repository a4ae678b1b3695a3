"""Playing: a world is asked for through the API, and what comes out is held against its truth."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from domain.quotas import DownloadQuotaLimits, QuotaLimits
from infra.settings import Settings
from sims.receiver import Receiver, running_receiver
from tests.support.api import Reply
from tests.support.downloads import Downloads, running_downloads
from tests.support.waiting import eventually
from tests.worlds import verdict
from tests.worlds.downloads import expecting, files, rows
from tests.worlds.downloads.source import PAGE_SECONDS, WorldSource, WorldSources, running_sources
from tests.worlds.downloads.world import HEADER, DownloadWorld, build_header, build_request
from tests.worlds.verdict import Ending, Outcome, Verdict

BOUND_SECONDS = 180.0
"""Long enough for a busy machine; what never ends is stopped then."""
RETRY_AFTER_MAX_SECONDS = 2.0
"""However long a source asks us to wait."""


@dataclass
class DownloadStage:
    """Where worlds are played: API, worker, and all their sources."""

    downloads: Downloads
    sources: WorldSources
    receiver: Receiver
    played: int = 0

    async def play(self, world: DownloadWorld) -> Verdict:
        """Play a world, and say what to think of what came out."""
        self.played += 1
        name = f"w{self.played}"
        tables = range(max(1, len(world.tables)))
        added = [self.sources.add(name, world, table) for table in tables]
        sources = [source for source, _ in added]
        outcome = await self._outcome(world, name, [url for _, url in added])
        fired = frozenset[str]().union(*(source.fired for source in sources))
        if world.is_inline and any(rows.is_bent(world, n) for n in range(world.rows)):
            fired = frozenset(world.flaw_names)
        if strange := _find_strange_headers(world, sources):
            return Verdict(Ending.SILENT, strange, fired)
        flaws = [flaw.name for flaw in world.flaws]
        return verdict.judge(expecting.build_expectation(world), outcome, flaws, fired)

    async def _outcome(self, world: DownloadWorld, name: str, urls: Sequence[str]) -> Outcome:
        downloads = self.downloads
        callback = self.receiver.url(tag=name) if world.wants_callback else None
        reply = await self._ask(world, build_request(world, urls, callback))
        if reply.status != 202:
            return Outcome(is_over=True, cause=f"refused: {reply.code}", message=str(reply.body))
        try:
            status = await downloads.wait_for_end(reply.body["task_id"], BOUND_SECONDS)
        except AssertionError:
            status = await downloads.status(reply.body["task_id"])
            return Outcome(is_over=False, message=str(status))
        unheard = await self._compare_callback(name, status) if callback else ""
        if status["state"] != "succeeded":
            cause = "another callback" if unheard else status["fault"]["code"]
            return Outcome(is_over=True, cause=cause, message=unheard or status["fault"]["message"])
        truth, found = (
            rows.list_expected_rows(world) * max(1, len(world.tables)),
            files.read(world, await downloads.file(status["task_id"])),
        )
        if world.has("ties"):
            # The order of the rows of such a source is undefined.
            truth, found = sorted(truth), sorted(found)
        difference = unheard or verdict.differences(truth, found)
        return Outcome(is_over=True, warnings=status["warnings"], difference=difference)

    async def _ask(self, world: DownloadWorld, body: dict[str, Any]) -> Reply:
        text = json.dumps(body)
        if world.is_inline:
            # As it is: a reader of JSON would change numbers.
            text = text[:-1] + f',"data":[{",".join(rows.write_row(world, n) for n in range(world.rows))}]}}'
        kind = {"Content-Type": "application/json"}
        downloads = self.downloads
        return await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, headers=kind, data=text)

    async def _compare_callback(self, name: str, status: Mapping[str, Any]) -> str:
        """Differences between the callback and the status, in words; the callback comes once."""
        try:
            received = await eventually(lambda: self.receiver.list_received(name))
        except AssertionError:
            return "no callback came"
        # A delivery whose answer was lost comes again, under its own id.
        once = {message.headers["webhook-id"]: json.loads(message.body)["data"] for message in received}
        told = list(once.values())
        code = (status["fault"] or {}).get("code")
        differing = [
            each for each in told if (each["state"], (each["fault"] or {}).get("code")) != (status["state"], code)
        ]
        if len(told) > 1 or differing:
            return f"{len(told)} callbacks told {told}"[:500]
        return "" if told[0]["rows"] in (None, status["rows"]) else f"the callback told {told[0]['rows']} rows"


def _find_strange_headers(world: DownloadWorld, sources: Sequence[WorldSource]) -> str:
    """What sources were sent that they should not have been, or were not sent that they want."""
    if world.is_inline:
        return ""
    wanted = [build_header(table)[HEADER] if wants else None for table, wants in enumerate(world.tables)] or [None]
    pairs = enumerate(zip(wanted, sources, strict=True))
    found = [f"table {table} was sent {source.headers}" for table, (own, source) in pairs if source.headers - {own}]
    return "; ".join(found)


def raise_limits(settings: Settings) -> Settings:
    """The same with quotas that are never reached."""
    party = DownloadQuotaLimits(downloads_per_minute=100_000, active=1_000)
    downloads = settings.downloads.model_copy(update={"operator_quotas": party})
    quotas = QuotaLimits(downloads_per_minute=100_000, downloads_active=1_000)
    return settings.model_copy(update={"downloads": downloads, "quotas": quotas})


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[DownloadStage]:
    """API, worker and sources, with times that are short in the same proportion."""
    times = {"page_timeout_seconds": PAGE_SECONDS, "retry_after_max_seconds": RETRY_AFTER_MAX_SECONDS}
    settings = raise_limits(settings)
    downloads = settings.downloads.model_copy(update=times)
    async with running_sources() as sources, running_receiver() as receiver:
        allow = [base.removeprefix("http://") for base in (*sources.bases, receiver.base)]
        guard = settings.guard.model_copy(update={"allow": allow})
        settings = settings.model_copy(update={"downloads": downloads, "guard": guard})
        async with running_downloads(settings, resume_window_seconds=30) as running:
            yield DownloadStage(running, sources, receiver)
