"""The whole house on one machine: embedded parts, migrations, API, workers, and the sample source."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from dev import surroundings
from dev.embedded import NotReady, Part, Stack, embedded
from dev.embedded.engine import NAMESPACE
from infra.settings import Settings
from services import services
from workflows import systems

ROOT = Path(__file__).parent.parent
INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
LOOPBACK = "127.0.0.1"
SOURCE_PORT = 8091
METRICS_PORT = 9091
WORKER_PROCESSES = 2
API_PROCESSES = 2


@dataclass(frozen=True)
class House:
    """Where everything is reached."""

    stack: Stack
    settings: Settings
    api: str
    source: str
    ui: str

    @property
    def admin_key(self) -> str:
        """The key that opens everything."""
        return self.settings.api.admin_key.get_secret_value()


@asynccontextmanager
async def house(settings: Settings) -> AsyncIterator[House]:
    """Start everything and yield when it serves; stop it in order at the end."""
    async with embedded(settings.data_dir, ui=True) as stack, processes(stack, stack.settings()) as running:
        with surroundings.told(settings.data_dir, stack.environment(running.settings)):
            yield running


@asynccontextmanager
async def processes(stack: Stack, settings: Settings, namespace: str = NAMESPACE) -> AsyncIterator[House]:
    """Prepare running parts, then start API, workers and sample source over them; stop these at the end.

    Args:
        settings: Lead to the parts; the ports of the processes and the way to the sample source are set here.
        namespace: The Temporal namespace of all of them.
    """
    ports = {
        "api": stack.claim_port("api", settings.api.port),
        "source": stack.claim_port("source", SOURCE_PORT),
        **{name: stack.claim_port(name, METRICS_PORT + n) for n, name in enumerate((*worker_names(), *api_names()))},
    }
    own = _settings(settings, ports)
    await services.prepare_installation(own, systems.ensure_schedules, stack.environment(own, namespace))
    async with stack.adding(
        _source(ports["source"]),
        *(_api(stack, own, namespace, name, ports[name]) for name in api_names()),
        *(_worker(stack, own, namespace, name, ports[name]) for name in worker_names()),
    ):
        addresses = stack.addresses
        yield House(stack, own, addresses["api"], addresses["source"], addresses.get("ui", ""))


def worker_names() -> list[str]:
    """The worker processes: several, because encoding rows is work for the processor."""
    return [f"worker-{number}" for number in range(1, WORKER_PROCESSES + 1)]


def api_names() -> list[str]:
    """The API processes: several on one port, because a request is work for the processor."""
    return [f"api-{number}" for number in range(1, API_PROCESSES + 1)]


def _settings(base: Settings, ports: Mapping[str, int]) -> Settings:
    """These settings with the ports of the processes, and the guard opened for the sample source."""
    source = f"{LOOPBACK}:{ports['source']}"
    return base.model_copy(
        update={
            "api": base.api.model_copy(update={"host": LOOPBACK, "port": ports["api"]}),
            "guard": base.guard.model_copy(update={"allow": [*base.guard.allow, source]}),
            "orders": base.orders.model_copy(update={"own_address": f"http://{LOOPBACK}:{ports['api']}"}),
        }
    )


def _source(port: int) -> Part:
    return _python("source", "-m", "sims.source", "--port", str(port), ready=_answers(port, "/stats"))


def _worker(stack: Stack, settings: Settings, namespace: str, name: str, metrics_port: int) -> Part:
    own = settings.model_copy(
        update={"worker": settings.worker.model_copy(update={"metrics_host": LOOPBACK, "metrics_port": metrics_port})}
    )
    env = stack.environment(own, namespace)
    return _python(name, "-m", "cli", "worker", env=env, ready=_answers(metrics_port, "/livez"))


def _api(stack: Stack, settings: Settings, namespace: str, name: str, own_port: int) -> Part:
    own = settings.model_copy(update={"api": settings.api.model_copy(update={"own_port": own_port})})
    return _python(name, "-m", "cli", "api", env=stack.environment(own, namespace), ready=_answers(own_port, "/livez"))


Ready = Callable[[], Awaitable[None]]


def _answers(port: int, path: str) -> Ready:
    """Ready when an HTTP server of ours answers."""

    async def ready() -> None:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{LOOPBACK}:{port}{path}") as answer:
                if answer.status != 200:
                    raise NotReady(f"port {port} answers {answer.status}")
        except aiohttp.ClientError as error:
            raise NotReady(f"port {port} does not answer: {error}") from error

    return ready


def _python(name: str, *arguments: str, ready: Ready, env: Mapping[str, str] | None = None) -> Part:
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    return Part(
        name=name,
        argv=[sys.executable, *arguments],
        env={**inherited, "PYTHONPATH": str(ROOT), **(env or {})},
        folder=ROOT,
        ready=ready,
        stop_timeout_seconds=20.0,
    )
