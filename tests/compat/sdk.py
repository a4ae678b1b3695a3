"""Build flowSvr's SDK outside the tree, and run its workers beside a Redis of their own."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.requirements import GO, REDIS, SDK
from tests.support.waiting import eventually

MODULE = "github.com/niuniumart/asyncflow"
"""The name that its own go.mod has."""
PUBLISHED = "github.com/scuwjh/asyncflow v0.0.0-20251022095302-ed1c44446f67"
SOURCE_VARIABLE = "COMPAT_SDK"
BUILD_SECONDS = 540.0

_GO_MOD = f"""module compat

go 1.16

require {MODULE} v0.0.0

replace {MODULE} => """


@dataclass(frozen=True)
class Binaries:
    """What was built."""

    example: Path
    """The SDK's own worker, unchanged."""
    steps: Path
    """`worker.go` of this folder."""


def build(folder: Path) -> Binaries:
    """Build both workers in a folder; where Go or the SDK cannot be had, the test is skipped with the reason.

    The SDK comes by Go's module proxy at its published commit, or from a checkout that `COMPAT_SDK` names.
    """
    go = GO.require()
    source = os.environ.get(SOURCE_VARIABLE)
    (folder / "go.mod").write_text(_GO_MOD + (source or PUBLISHED) + "\n")
    shutil.copy(Path(__file__).with_name("worker.go"), folder / "main.go")
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    binaries = Binaries(folder / "example", folder / "steps")
    for binary, package in ((binaries.steps, "."), (binaries.example, f"{MODULE}/worker/src")):
        done = subprocess.run(
            [go, "build", "-o", binary, package],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        if done.returncode and not source and "reading http" in done.stderr:
            # Not to be had is no failure of this API, also in CI: the client's bytes are tested without it.
            pytest.skip(f"{SDK.mark}: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, f"{package} was not built:\n{done.stderr}"
    return binaries


@dataclass(frozen=True)
class Redis:
    """Where the SDK takes its locks."""

    port: int
    password: str

    @property
    def address(self) -> str:
        """As the SDK wants it."""
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def running_redis(port: int) -> AsyncIterator[Redis]:
    """Run a Redis that keeps nothing."""
    redis = Redis(port, secrets.token_hex(8))
    options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "requirepass": redis.password}
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = await asyncio.create_subprocess_exec(
        REDIS.require(), *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:

        async def is_up() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(is_up)
        yield redis
    finally:
        await _end(process)


class RunningWorker:
    """A process of the SDK; one that dies by itself is started again, as its map of types may kill it."""

    def __init__(self, binary: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._binary = binary
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None
        self.output = folder / "output"
        self.deaths = 0

    async def start(self) -> None:
        """Start it, in a folder of its own: it writes its log beside that."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                self._binary, cwd=self._folder, env=self._environment, stdout=output, stderr=output
            )

    async def look_after(self) -> None:
        """Start it again if it has died by itself."""
        if self._process and self._process.returncode is not None:
            self.deaths += 1
            assert self.deaths < 5, self.output.read_text(errors="replace")[-2_000:]
            await self.start()

    async def kill(self) -> None:
        """SIGKILL it."""
        if self._process:
            await _end(self._process)
            self._process = None


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()


@asynccontextmanager
async def running_example(binaries: Binaries, folder: Path, base: str, redis: Redis) -> AsyncIterator[RunningWorker]:
    """Run the SDK's own worker with the configuration file that it looks for beside a `main.go`."""
    (folder / "config").mkdir(parents=True)
    (folder / "main.go").touch()
    lines = {"flowsvr_addr": base, "redis_lock_addr": redis.address, "redis_lock_password": redis.password}
    (folder / "config/config.toml").write_text("".join(f'{name} = "{value}"\n' for name, value in lines.items()))
    worker = RunningWorker(binaries.example, folder, {})
    await worker.start()
    try:
        yield worker
    finally:
        await worker.kill()


@asynccontextmanager
async def running_steps(
    binaries: Binaries, folder: Path, base: str, redis: Redis, record: Path
) -> AsyncIterator[RunningWorker]:
    """Run `worker.go`, which writes what it does into a record."""
    environment = {
        "COMPAT_BASE": base,
        "COMPAT_REDIS": redis.address,
        "COMPAT_REDIS_PASSWORD": redis.password,
        "COMPAT_RECORD": str(record),
    }
    worker = RunningWorker(binaries.steps, folder, environment)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.kill()
