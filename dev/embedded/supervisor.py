"""The supervisor: starts parts, restarts what dies, stops in order, and leaves nobody behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dev.embedded import processes
from dev.embedded.part import NotReady, Part, PartFailed
from dev.embedded.record import Record, Recorded
from infra import log

LOG_MAX_BYTES = 8 * 1024 * 1024
LAST_LINES_BYTES = 2_000
PROBE_PAUSE_SECONDS = 0.02
PROBE_TIMEOUT_SECONDS = 5.0
FIRST_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
STEADY_SECONDS = 10.0

_log = log.get(__name__)


class Supervisor:
    """Keeps parts running.

    Args:
        record: Where pids are written down for a successor.
        logs: Folder of the parts' output, one file each.
    """

    def __init__(self, record: Record, logs: Path) -> None:
        self._record = record
        self._logs = logs
        self._groups: list[list[_Keeper]] = []

    async def start(self, *parts: Part) -> None:
        """Start parts together and return when all of them serve; they stop together, before those started earlier."""
        group = [_Keeper(part, self._record, self._logs / f"{part.name}.log") for part in parts]
        self._groups.append(group)
        try:
            async with asyncio.TaskGroup() as starting:
                for keeper in group:
                    starting.create_task(keeper.start())
        except BaseExceptionGroup as failures:
            # One sentence about the first part that failed helps more than a tree of all.
            raise failures.exceptions[0] from None

    async def stop_parts(self, *parts: Part) -> None:
        """Stop the group of these parts, which were started together, and forget it."""
        names = {part.name for part in parts}
        [group] = [group for group in self._groups if {keeper.part.name for keeper in group} == names]
        self._groups.remove(group)
        await asyncio.gather(*(keeper.stop() for keeper in group))

    async def stop(self) -> None:
        """Stop everything, the last started first."""
        while self._groups:
            group = self._groups.pop()
            await asyncio.gather(*(keeper.stop() for keeper in group))

    def kill(self, name: str) -> None:
        """SIGKILL, as the kernel would when memory runs out. The part is started again, on the same port."""
        self._keeper(name).kill()

    async def ready(self, name: str) -> None:
        """Wait until a part serves."""
        await self._keeper(name).serving.wait()

    def pids(self) -> dict[str, int]:
        """The processes that run now, by part."""
        keepers = [keeper for group in self._groups for keeper in group]
        return {keeper.part.name: pid for keeper in keepers if (pid := keeper.pid)}

    def _keeper(self, name: str) -> _Keeper:
        for group in self._groups:
            for keeper in group:
                if keeper.part.name == name:
                    return keeper
        raise KeyError(name)


class _Keeper:
    """Keeps one part running."""

    def __init__(self, part: Part, record: Record, log_path: Path) -> None:
        self.part = part
        self.serving = asyncio.Event()
        self._record = record
        self._log_path = log_path
        self._served = False
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Return when the part serves, and go on keeping it; give up when it never does."""
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self.part.name}")
        served = asyncio.create_task(self.serving.wait())
        try:
            await asyncio.wait({self._keeping, served}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            served.cancel()
        if self._keeping.done():
            keeping, self._keeping = self._keeping, None
            keeping.result()

    def kill(self) -> None:
        self.serving.clear()
        if self._process and self.pid:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        if self._keeping:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
            if not self._keeping.cancelled() and (error := self._keeping.exception()):
                _log.error("part_given_up", part=self.part.name, reason=str(error))
        self.serving.clear()
        if self._process:
            await self._end(self._process)
        await self.part.clean()
        self._record.note(self.part.name, None)

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        attempts = 0
        while True:
            began = time.monotonic()
            attempts += 1
            try:
                reason = await self._run(began)
            except OSError as error:
                reason = f"the system refused: {error}"
            if not self._served and attempts == FIRST_ATTEMPTS:
                raise PartFailed(self.part.name, reason, self._last_lines())
            ran = time.monotonic() - began
            _log.warning("part_died", part=self.part.name, reason=reason, ran_seconds=round(ran, 2))
            if ran > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _run(self, began: float) -> str:
        """One life of the process; returns why it ended."""
        await self.part.prepare()
        process = self._process = await self._spawn()
        if hindrance := await self._until_serving(process):
            await process.wait()
            return hindrance
        self._served = True
        self.serving.set()
        seconds = round(time.monotonic() - began, 2)
        _log.info("part_ready", part=self.part.name, pid=process.pid, seconds=seconds)
        code = await process.wait()
        self.serving.clear()
        return f"it ended with exit code {code}"

    async def _spawn(self) -> asyncio.subprocess.Process:
        part = self.part
        with self._open_log() as output:
            # A session of its own: Ctrl-C on the terminal reaches the supervisor alone, which stops the parts in order.
            process = await asyncio.create_subprocess_exec(
                *processes.dying_with_parent(part.argv, part.death_signal),
                env=part.env,
                cwd=part.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._record.note(part.name, Recorded.of(process.pid, part.death_signal))
        return process

    async def _until_serving(self, process: asyncio.subprocess.Process) -> str | None:
        """None when the part serves, else why not: it ended, or it took too long and was killed."""
        deadline = time.monotonic() + self.part.ready_timeout_seconds
        reason = "it was not asked"
        while process.returncode is None:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                    await self.part.ready()
            except NotReady as error:
                reason = str(error)
            except TimeoutError:
                reason = f"no answer within {PROBE_TIMEOUT_SECONDS} s"
            else:
                return None
            if time.monotonic() > deadline:
                process.kill()
                return f"it did not serve within {self.part.ready_timeout_seconds} s; {reason}"
            await asyncio.sleep(PROBE_PAUSE_SECONDS)
        return f"it ended with exit code {process.returncode}"

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(self.part.stop_signal)
        try:
            await asyncio.wait_for(process.wait(), self.part.stop_timeout_seconds)
        except TimeoutError:
            _log.warning("part_killed", part=self.part.name, waited_seconds=self.part.stop_timeout_seconds)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _open_log(self) -> BinaryIO:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        if self._log_path.exists() and self._log_path.stat().st_size > LOG_MAX_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))
        return self._log_path.open("ab")

    def _last_lines(self) -> str:
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as output:
            output.seek(max(0, self._log_path.stat().st_size - LAST_LINES_BYTES))
            return output.read().decode(errors="replace")


@asynccontextmanager
async def supervised(record: Record, logs: Path) -> AsyncIterator[Supervisor]:
    """A supervisor that stops what it started, whatever happens."""
    supervisor = Supervisor(record, logs)
    try:
        yield supervisor
    finally:
        await supervisor.stop()
