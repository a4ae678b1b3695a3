"""API and worker processes of two versions, and the balancer that takes an API process out before it is stopped."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from dev.embedded.components import request_status
from dev.embedded.ports import LOOPBACK
from dev.embedded.processes import collect_inherited_variables
from dev.embedded.stack import EmbeddedStack
from dev.local import LocalInstallation
from infra.settings import Settings
from sims.source import running_source
from tests.rehearsal.next_version import ROOT
from tests.support.waiting import eventually

HOSTS = (1, 2)
"""Each has an API process and a worker process, which are replaced together."""
READY_SECONDS = 120.0
STOP_SECONDS = 60.0
CHUNK_BYTES = 65_536


@dataclass
class Balancer:
    """Passes connections on to the API processes that are in rotation."""

    ports: list[int] = field(default_factory=list)
    base: str = ""
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a caller with the next process."""
        with suppress(OSError):
            port = self.ports[next(self._turns) % len(self.ports)]
            theirs, to_them = await asyncio.open_connection(LOOPBACK, port)
            await asyncio.gather(_copy(reader, to_them), _copy(theirs, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    finally:
        with suppress(OSError):
            writer.close()


@dataclass
class VersionedInstallation:
    """Processes that can be replaced by those of another tree, one host after the other."""

    stack: EmbeddedStack
    settings: Settings
    namespace: str
    balancer: Balancer
    ports: dict[str, int]
    running: dict[str, Process] = field(default_factory=dict)

    async def migrate(self, tree: Path) -> None:
        """Migrate the database to the version of a tree.

        Raises:
            AssertionError: It cannot be migrated.
        """
        process = await self._start(tree, "migrate", "migrate", self.settings, "")
        assert await process.wait() == 0, f"see {self._log_path('migrate')}"

    async def start(self, host: int, tree: Path, compatible_with: str) -> None:
        """Start the processes of a host from a tree, and take its API into rotation when it serves."""
        api, worker = f"api-{host}", f"worker-{host}"
        own = self.settings.model_copy(
            update={
                "api": self.settings.api.model_copy(update={"host": LOOPBACK, "port": self.ports[api]}),
                "worker": self.settings.worker.model_copy(
                    update={"metrics_host": LOOPBACK, "metrics_port": self.ports[worker]}
                ),
            }
        )
        for name, command in ((api, "api"), (worker, "worker")):
            self.running[name] = await self._start(tree, name, command, own, compatible_with)
        for name in (api, worker):
            await eventually(partial(self._is_ready, name), READY_SECONDS)
        self.balancer.ports.append(self.ports[api])

    async def stop(self, host: int) -> None:
        """Take the API of a host out of rotation, and stop its processes in order.

        Raises:
            AssertionError: One does not end by itself.
        """
        self.balancer.ports.remove(self.ports[f"api-{host}"])
        for name in (f"api-{host}", f"worker-{host}"):
            self.running[name].send_signal(signal.SIGTERM)
        for name in (f"api-{host}", f"worker-{host}"):
            code = await asyncio.wait_for(self.running.pop(name).wait(), STOP_SECONDS)
            assert code == 0, f"{name} ended with {code}: see {self._log_path(name)}"

    def kill_all(self) -> None:
        """End what runs still."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def _is_ready(self, name: str) -> bool:
        if self.running[name].returncode is not None:
            raise RuntimeError(f"{name} has ended: see {self._log_path(name)}")
        with suppress(OSError):
            return await request_status(self.ports[name], "/livez") == HTTPStatus.OK
        return False

    async def _start(self, tree: Path, name: str, command: str, settings: Settings, compatible_with: str) -> Process:
        engine = settings.engine.model_copy(update={"compatible_with": compatible_with})
        variables = self.stack.build_environment(settings.model_copy(update={"engine": engine}), self.namespace)
        with self._log_path(name).open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cli", command,
                cwd=tree,
                env={**collect_inherited_variables(), **variables, "PYTHONPATH": str(tree)},
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip

    def _log_path(self, name: str) -> Path:
        return self.stack.data_dir / "logs" / f"{name}.log"


@asynccontextmanager
async def running_versions(
    stack: EmbeddedStack, settings: Settings, namespace: str
) -> AsyncIterator[LocalInstallation]:
    """Run the processes of this tree behind a balancer, and a sample source.

    `versions` of the result replaces the processes.
    """
    balancer = Balancer()
    server = await asyncio.start_server(balancer.pass_on, LOOPBACK, 0)
    balancer.base = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    names = [f"{role}-{host}" for host in HOSTS for role in ("api", "worker")]
    ports = {name: stack.ports.reserve(f"rehearsed-{name}", 0) for name in names}
    orders = settings.orders.model_copy(update={"own_address": balancer.base})
    settings = settings.model_copy(update={"orders": orders})
    versions = VersionedInstallation(stack, settings, namespace, balancer, ports)
    async with server, running_source() as source:
        allow = [*settings.guard.allow, source.base.removeprefix("http://")]
        versions.settings = settings = settings.model_copy(
            update={"guard": settings.guard.model_copy(update={"allow": allow})}
        )
        await versions.migrate(ROOT)
        try:
            for host in HOSTS:
                await versions.start(host, ROOT, "")
            running = SimpleNamespace(
                api=balancer.base,
                source=source.base,
                admin_key=settings.api.admin_key.get_secret_value(),
                settings=settings,
                stack=stack,
                versions=versions,
            )
            yield cast("LocalInstallation", running)
        finally:
            versions.kill_all()
