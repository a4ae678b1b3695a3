"""Transfers in the demo: one file to 2,000 hosts; some fail at first and are retried, a few always fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from demo.part import Demo, Show, WrongOutcome
from haulage.transfers import Target, TargetStatus, TransferFile, Transfers, TransferState
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseAction, GseRule, GseScenario
from sims.gse.tasks import FileSpot

HOSTS: Final = 2_000
BROKEN: Final = tuple(f"demo-broken-{number}" for number in range(5))
"""Hosts without a user `app`, to which sending again would not help."""
TARGETS: Final = (*(f"demo-{number:04}" for number in range(HOSTS - len(BROKEN))), *BROKEN)
FOLDER: Final = "/data/config"
FILE_BYTES: Final = 40_000
RETRIED_CODE: Final = 101
FINAL_CODE: Final = 104
FAULTS: Final = (
    GseRule(action=GseAction.FAIL, agent=r"demo-broken-\d+", code=FINAL_CODE, message="no such user"),
    GseRule(action=GseAction.FAIL, agent=r"demo-\d+", code=RETRIED_CODE, message="busy", fraction=0.05, times=1),
)


@dataclass
class TransfersPart:
    """A file to many hosts of the stand-in GSE."""

    system: str = "transfers"
    _content: bytes = field(default_factory=lambda: random.SystemRandom().randbytes(FILE_BYTES))
    _job_ids: list[str] = field(default_factory=list)

    async def prepare(self, demo: Demo) -> None:
        """Put a new file into the repository, and have hosts fail."""
        await demo.call_stand_in("repository", "PUT", "/files", data=self._content)
        scenario = GseScenario(rules=FAULTS).model_dump_json(exclude_defaults=True)
        await demo.call_stand_in("gse", "PUT", "/_sim/scenario", data=scenario)
        (demo.folder / "app.conf").write_bytes(self._content)

    async def run(self, demo: Demo, show: Show) -> str:
        """Send it to all hosts, and wait until each has ended."""
        file = TransferFile.from_local(
            demo.folder / "app.conf", biz_id=2, app_id=7, target_user="app", target_file_dir=FOLDER
        )
        async with Transfers(demo.api, demo.key) as transfers:
            tasks = await transfers.send(file, [Target(target_agent_id=host) for host in TARGETS])
            self._job_ids = sorted({task.job_id for task in tasks})
            for before, job_id in enumerate(self._job_ids):
                async for job in transfers.watch(job_id):
                    ended = HOSTS if before + 1 == len(self._job_ids) and job.status.final else job.ended
                    show(ended, HOSTS, f"{ended:,} of {HOSTS:,} hosts")
        return f"sent a file to {HOSTS:,} hosts, in a window of 3 s instead of 15"

    async def check(self, demo: Demo) -> str:
        """Compare the file on each host's disk with what the API says of the host."""
        async with Transfers(demo.api, demo.key) as transfers:
            found = [each for job_id in self._job_ids async for each in transfers.list_targets(job_id)]
        states = {each.target_agent_id: each for each in found}
        if sorted(states, key=str) != sorted(TARGETS):
            raise WrongOutcome(f"The API tells of {len(states):,} hosts, not of {HOSTS:,}.")
        wrong = [host for host in TARGETS if not _has_ended_as_planned(host, states[host])]
        if wrong:
            raise WrongOutcome(f"{len(wrong):,} hosts ended otherwise than planned, the first is {states[wrong[0]]}.")
        other = await asyncio.to_thread(self._find_other_files, demo.stand_in_folder / "hosts")
        if other:
            raise WrongOutcome(f"{len(other):,} hosts do not have what the API says, the first is {other[0]}.")
        sent = Counter(await self._count_sends(demo))
        again = sum(count > 1 for count in sent.values())
        if not again:
            raise WrongOutcome("No host was sent the file again, although some had failed.")
        return f"the bytes on every disk; {again} hosts were retried, {len(BROKEN)} failed for good, as planned"

    def _find_other_files(self, folder: Path) -> list[str]:
        """Return the hosts that lack the file, or have one although they failed."""
        disks, signature = HostDisks(folder, links=True), sha256(self._content).hexdigest()
        paths = {host: disks.path(FileSpot(host, "", FOLDER, signature)) for host in TARGETS}
        held = {host: path.read_bytes() if path.exists() else None for host, path in paths.items()}
        return [host for host in TARGETS if held[host] != (None if host in BROKEN else self._content)]

    async def _count_sends(self, demo: Demo) -> list[str]:
        """Return the name of a host for each time that GSE was asked to send something to it."""
        targets = await demo.call_stand_in("gse", "GET", "/_sim/targets")
        return [each["agent_id"] for each in targets if each["agent_id"] in TARGETS]


def _has_ended_as_planned(host: str, status: TargetStatus) -> bool:
    if host in BROKEN:
        return (status.status, status.code) == (TransferState.FAILED, FINAL_CODE)
    return status.status is TransferState.SUCCESS
