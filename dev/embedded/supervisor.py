"""The supervisor: starts processes, restarts those that die, stops them in order, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from dev.embedded import processes
from dev.embedded.preloading import ForkedProcess
from dev.embedded.processes import Announce, ProcessLog, RecordedProcess, SilenceTimer, StartReporter, StartStep
from dev.embedded.run_file import RunFile
from domain.faults import Fault
from infra import log

LOGS_LOOKED_AT_SECONDS = 60.0
PROBE_PAUSE_SECONDS = 0.02
WAIT_SECONDS = 1.0
FIRST_PROBE_TIMEOUT_SECONDS = 0.3
PROBE_TIMEOUT_SECONDS = 5.0
FIRST_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
STABLE_SECONDS = 10.0

_log = log.get(__name__)


class NotReady(Exception):
    """The process does not serve yet; the message says why."""


class StartFailed(Fault):
    """A process could not be started.

    Args:
        name: The process.
        reason: Why, without a full stop.
        last_lines: The end of its output.
        log_path: The file of its output, if it has one.
    """

    def __init__(self, name: str, reason: str, last_lines: str = "", log_path: Path | None = None) -> None:
        said = f"Its last lines:\n{last_lines.rstrip()}\n" if last_lines.strip() else ""
        where = f"All of its output is in {log_path}. " if log_path else ""
        super().__init__(
            "component_not_started",
            f"{name} did not start: {reason}.",
            f"{said}{where}Remove the cause and start again.",
        )


async def do_nothing() -> None:
    """Return at once: the default of the hooks of a process."""


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """How a process is started, checked and stopped.

    Args:
        name: Stable name, for logs, `run.json` and `Supervisor.kill`.
        argv: The command.
        env: The whole environment; nothing is inherited.
        folder: Working directory.
        ready: Raises NotReady until the process serves.
        prepare: Runs before every start, e.g. to create a data folder.
        clean: Runs after the stop, to remove what the process leaves behind.
        action: What it does until it serves, after "still", for the line about what takes long.
        silence_seconds: A process that shows no sign of life for longer before it serves is killed and started again;
            on a busy machine it has as much longer as processes wait for each core.
        stop_signal: Asks for an orderly stop; SIGKILL follows after `stop_timeout_seconds`.
        death_signal: Sent by the kernel when the supervisor dies; must end the process and its children.
        fork: Makes the process, with its output in this file; `argv` is started where it returns None.
        attach: Gets the process, which has pipes as its input and output then.
    """

    name: str
    argv: list[str]
    env: Mapping[str, str] = field(repr=False)
    folder: Path
    ready: Callable[[], Awaitable[None]] = do_nothing
    prepare: Callable[[], Awaitable[None]] = do_nothing
    clean: Callable[[], Awaitable[None]] = do_nothing
    action: str = "starting"
    silence_seconds: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_seconds: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL
    fork: Callable[[Path], Awaitable[ForkedProcess | None]] | None = None
    attach: Callable[[asyncio.subprocess.Process], None] | None = None


Process: TypeAlias = asyncio.subprocess.Process | ForkedProcess


class ProcessSupervisor:
    """Start processes, restart those that die, and stop them in order.

    Args:
        run_file: Where the pids are recorded for the next supervisor.
        logs: The folder of their output, one file each.
        report: Learns what is starting.
    """

    def __init__(self, run_file: RunFile, logs: Path, report: StartReporter) -> None:
        self.report = report
        self._run_file = run_file
        self._logs = logs
        self._groups: list[list[_SupervisedProcess]] = []

    async def start(self, *specs: ProcessSpec) -> None:
        """Start processes as a group and return when all of them serve; groups stop in reverse order.

        Raises:
            ValueError: A process of one of the names runs: kills, logs and `run.json` know processes by their names.
            StartFailed: A process did not serve; the group is stopped.
        """
        if taken := {spec.name for spec in specs} & self._processes.keys():
            raise ValueError(f"{', '.join(sorted(taken))}: running already; stop that group first, or use other names")
        group = list(map(self._create_process, specs))
        self._groups.append(group)
        try:
            async with asyncio.TaskGroup() as starting:
                for process in group:
                    starting.create_task(process.start())
        except BaseException as failure:
            await self.stop_group(*specs)
            if not isinstance(failure, BaseExceptionGroup):
                raise
            # One sentence about the first failure helps more than a tree of all.
            raise failure.exceptions[0] from None

    async def run_until_it_ends(self, spec: ProcessSpec) -> None:
        """Run a process that ends by itself.

        Raises:
            StartFailed: It ended with an exit code other than 0, or showed no sign of life for too long.
        """
        await self._create_process(spec).run_until_it_ends()

    def _create_process(self, spec: ProcessSpec) -> _SupervisedProcess:
        return _SupervisedProcess(spec, self._run_file, self._logs / f"{spec.name}.log", self.report)

    async def stop_group(self, *specs: ProcessSpec) -> None:
        """Stop a group that was started together, and forget it."""
        names = {spec.name for spec in specs}
        [group] = [group for group in self._groups if {process.spec.name for process in group} == names]
        await self._stop_and_forget(group)

    async def stop(self) -> None:
        """Stop all groups, the last one first."""
        while self._groups:
            await self._stop_and_forget(self._groups[-1])

    async def _stop_and_forget(self, group: list[_SupervisedProcess]) -> None:
        self._groups.remove(group)
        outcomes = await asyncio.gather(*(process.stop() for process in group), return_exceptions=True)
        for failure in filter(None, outcomes):
            raise failure

    async def shorten_logs_until_cancelled(self) -> None:
        """Keep the logs of processes that run for long from filling the disk."""
        while True:
            await asyncio.sleep(LOGS_LOOKED_AT_SECONDS)
            for process in self._processes.values():
                await asyncio.to_thread(process.log.rotate_if_long)

    def kill_and_let_restart(self, name: str) -> None:
        """Send SIGKILL, as the kernel does when memory runs out. The process is restarted on the same port."""
        self._processes[name].kill()

    async def wait_until_ready(self, name: str) -> None:
        """Wait until a process serves."""
        await self._processes[name].serving.wait()

    def list_pids(self) -> dict[str, int]:
        """Return the pids of the running processes by name."""
        return {name: pid for name, process in self._processes.items() if (pid := process.pid)}

    @property
    def _processes(self) -> dict[str, _SupervisedProcess]:
        return {process.spec.name: process for group in self._groups for process in group}


class _SupervisedProcess:
    """A process that is restarted whenever it ends."""

    def __init__(self, spec: ProcessSpec, run_file: RunFile, log_path: Path, report: StartReporter) -> None:
        self.spec = spec
        self._report = report
        self.serving = asyncio.Event()
        self._run_file = run_file
        self.log = ProcessLog(log_path)
        self._served = False
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Return when the process serves, and keep it running from then on.

        Raises:
            StartFailed: It did not serve after several attempts.
        """
        running = self._running = asyncio.create_task(self._restart_whenever_ended(), name=f"keep {self.spec.name}")
        served = asyncio.create_task(self.serving.wait())
        try:
            await asyncio.wait({running, served}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            served.cancel()
        if running.done():
            self._running = None
            running.result()

    async def run_until_it_ends(self) -> None:
        """Return when the process has ended by itself; kill it if this is cancelled."""
        try:
            with self._report.track_step(self.spec.name, self.spec.action):
                process = self._process = await self._start_and_record()
                silence = SilenceTimer(process.pid, self.log.path)
                ending = asyncio.create_task(process.wait())
                while not (await asyncio.wait({ending}, timeout=WAIT_SECONDS))[0]:
                    if reason := self._describe_excessive_silence(silence):
                        raise self._build_start_failure(reason)
            if code := process.returncode:
                raise self._build_start_failure(f"it ended with exit code {code}")
        finally:
            await self.stop()

    def _build_start_failure(self, reason: str) -> StartFailed:
        return StartFailed(self.spec.name, reason, self.log.read_last_lines(), self.log.path)

    def kill(self) -> None:
        self.serving.clear()
        if self._process and self.pid:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running:
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled() and (error := running.exception()):
                _log.error("component_given_up", component=self.spec.name, reason=str(error))
        self.serving.clear()
        if self._process:
            await self._terminate(self._process)
        await self.spec.clean()
        self._run_file.save_process(self.spec.name, None)

    async def _restart_whenever_ended(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        attempts = 0
        while True:
            began = time.monotonic()
            attempts += 1
            try:
                reason = await self._run_once(began)
            except Exception as error:
                # What has served is started again whatever happens: nothing else would start it.
                if not (self._served or isinstance(error, OSError)):
                    raise
                reason = f"the system refused: {error}" if isinstance(error, OSError) else repr(error)
            if self._process:
                await self._terminate(self._process)
            if not self._served and attempts == FIRST_ATTEMPTS:
                raise self._build_start_failure(reason)
            ran = time.monotonic() - began
            self._report.announce(f"{self.spec.name}: died after {ran:.1f} s and is started again ({reason})")
            if ran > STABLE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _run_once(self, began: float) -> str:
        """Run the process until it ends; return why it ended."""
        with self._report.track_step(self.spec.name, self.spec.action) as step:
            await self.spec.prepare()
            process = self._process = await self._start_and_record()
            reason = await self._wait_until_serving_or_kill(process, step)
        if reason:
            await process.wait()
            return reason
        self._served = True
        self.serving.set()
        seconds = round(time.monotonic() - began, 2)
        self._run_file.save_ready_seconds(self.spec.name, seconds)
        _log.info("component_ready", component=self.spec.name, pid=process.pid, seconds=seconds)
        code = await process.wait()
        self.serving.clear()
        return f"it ended with exit code {code}"

    async def _start_and_record(self) -> Process:
        forked = await self.spec.fork(self.log.make_folder_and_shorten()) if self.spec.fork else None
        process = forked or await self._start_subprocess()
        self._run_file.save_process(self.spec.name, RecordedProcess.from_pid(process.pid, self.spec.death_signal))
        return process

    async def _start_subprocess(self) -> asyncio.subprocess.Process:
        spec = self.spec
        pipe = asyncio.subprocess.PIPE
        with self.log.make_folder_and_shorten().open("ab") as output:
            # In its own session Ctrl-C on the terminal reaches only the supervisor, which stops the processes in order.
            process = await asyncio.create_subprocess_exec(
                *processes.wrap_with_death_signal(spec.argv, spec.death_signal),
                env=spec.env,
                cwd=spec.folder,
                stdin=pipe if spec.attach else asyncio.subprocess.DEVNULL,
                stdout=pipe if spec.attach else output,
                stderr=output,
                start_new_session=True,
            )
        if spec.attach:
            spec.attach(process)
        return process

    async def _wait_until_serving_or_kill(self, process: Process, step: StartStep) -> str | None:
        """Return None when the process serves; otherwise why it ended, or why it was killed."""
        silence = SilenceTimer(process.pid, self.log.path)
        # A look for signs of life reads several files, and costs more than a probe.
        looking_pause = min(WAIT_SECONDS, self.spec.silence_seconds / 10)
        look_at = time.monotonic() + looking_pause
        timeout = FIRST_PROBE_TIMEOUT_SECONDS
        while process.returncode is None:
            step.obstacle = await self._describe_unreadiness(timeout)
            if not step.obstacle:
                return None
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + looking_pause
                if reason := self._describe_excessive_silence(silence):
                    process.kill()
                    return f"{reason}; {step.obstacle}"
            # What was asked too early may never be answered; a busy machine takes long to answer.
            timeout = min(timeout * 1.5, PROBE_TIMEOUT_SECONDS * processes.measure_load_per_core_at_least_one())
            await asyncio.sleep(PROBE_PAUSE_SECONDS)
        return f"it ended with exit code {process.returncode}"

    def _describe_excessive_silence(self, silence: SilenceTimer) -> str:
        """Return for how long the process has shown no sign of life; empty if that may still be."""
        silent = silence.measure_silence()
        if silent <= self.spec.silence_seconds * processes.measure_load_per_core_at_least_one():
            return ""
        return f"for {silent:.1f} s it neither wrote a line nor used processor time"

    async def _describe_unreadiness(self, timeout: float) -> str:
        """Return why the process does not serve yet; empty if it does."""
        try:
            async with asyncio.timeout(timeout):
                await self.spec.ready()
        except NotReady as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {timeout:.1f} s"
        return ""

    async def _terminate(self, process: Process) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(self.spec.stop_signal)
        try:
            await asyncio.wait_for(process.wait(), self.spec.stop_timeout_seconds)
        except TimeoutError:
            waited = self.spec.stop_timeout_seconds
            self._report.announce(f"{self.spec.name}: did not stop within {waited:g} s and was killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@asynccontextmanager
async def run_supervisor(
    run_file: RunFile, logs: Path, announce: Announce = processes.announce_by_log
) -> AsyncIterator[ProcessSupervisor]:
    """Yield a supervisor, and stop everything that it has started at the end of the block.

    Args:
        announce: Gets a line about what takes long to start.
    """
    report = StartReporter(announce)
    reporting = asyncio.create_task(report.report_until_cancelled(), name="report what is starting")
    supervisor = ProcessSupervisor(run_file, logs, report)
    shortening = asyncio.create_task(supervisor.shorten_logs_until_cancelled(), name="shorten logs")
    try:
        yield supervisor
    finally:
        reporting.cancel()
        shortening.cancel()
        await supervisor.stop()
