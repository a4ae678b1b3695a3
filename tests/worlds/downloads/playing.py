"""Playing: a world is asked for through the API, and what comes out is held against its truth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from infra.settings import DownloadSettings, PartyQuotas, QuotaSettings, Settings
from tests.support.api import Reply
from tests.support.downloads import Downloads, running_downloads
from tests.worlds import verdict
from tests.worlds.downloads import expecting, files, rows
from tests.worlds.downloads.source import Sources, running_sources
from tests.worlds.downloads.world import World, request
from tests.worlds.verdict import Outcome, Verdict

BOUND_SECONDS = 180.0
"""On a machine that has other things to do, too; what never ends ends here."""
PAGE_SECONDS = 8.0
"""So long a page may take: long for a busy machine, short for one that trickles."""


@dataclass
class Stage:
    """Where worlds are played: API, worker, and all their sources."""

    downloads: Downloads
    sources: Sources
    played: int = 0

    async def play(self, world: World) -> Verdict:
        """Play a world, and say what to think of what came out."""
        self.played += 1
        source, url = self.sources.add(f"w{self.played}", world)
        outcome = await self._outcome(world, url)
        flaws = [flaw.name for flaw in world.flaws]
        return verdict.judge(expecting.expected(world), outcome, flaws, frozenset(source.fired))

    async def _outcome(self, world: World, url: str) -> Outcome:
        downloads = self.downloads
        body = request(world, url)
        reply: Reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=body)
        if reply.status != 202:
            return Outcome(is_over=True, cause=f"refused: {reply.code}", message=str(reply.body))
        try:
            status = await downloads.ended(reply.body["task_id"], BOUND_SECONDS)
        except AssertionError:
            status = await downloads.status(reply.body["task_id"])
            return Outcome(is_over=False, message=str(status))
        if status["state"] != "succeeded":
            return Outcome(is_over=True, cause=status["fault"]["code"], message=status["fault"]["message"])
        truth, found = rows.truth(world), files.read(world, await downloads.file(status["task_id"]))
        if world.has("ties"):
            # What order such a source's rows have nobody knows.
            truth, found = sorted(truth), sorted(found)
        difference = verdict.differences(truth, found)
        return Outcome(is_over=True, warnings=status["warnings"], difference=difference)


def plenty(settings: DownloadSettings) -> DownloadSettings:
    """The same with quotas that nobody reaches."""
    party = PartyQuotas(submissions_per_minute=100_000, active=1_000)
    return settings.model_copy(update={"quotas": QuotaSettings(project=party, operator=party)})


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[Stage]:
    """API, worker and sources, with times that are short in the same proportion."""
    downloads = plenty(settings.downloads).model_copy(update={"page_timeout_seconds": PAGE_SECONDS})
    async with running_sources() as sources:
        guard = settings.guard.model_copy(update={"allow": [sources.base.removeprefix("http://")]})
        settings = settings.model_copy(update={"downloads": downloads, "guard": guard})
        async with running_downloads(settings, resume_window_seconds=30) as running:
            yield Stage(running, sources)
