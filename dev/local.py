"""A local installation: embedded components, migrations, API, workers and stand-ins on one machine."""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from dev import stand_ins
from dev.embedded import preloading
from dev.embedded.components import NAMESPACE, request_status
from dev.embedded.environment import write_environment_file_while_running
from dev.embedded.fork_server import COMMON_ROLE
from dev.embedded.preloading import ForkedPreloader, ForkedProcess, Preloader
from dev.embedded.processes import ROOT, Announce, announce_by_log, collect_inherited_variables
from dev.embedded.run_file import require_no_unfinished_restore
from dev.embedded.stack import EmbeddedStack, run_stack
from dev.embedded.supervisor import NotReady, ProcessSpec, StartFailed, do_nothing
from domain.faults import Fault
from infra.settings import Settings
from infra.stopping import API_STOP_SECONDS, compute_worker_stop_seconds

ReadinessCheck = Callable[[], Awaitable[None]]

LOOPBACK = "127.0.0.1"
METRICS_PORT = 9091
WORKER_PROCESSES = 2
API_PROCESSES = 2


@dataclass(frozen=True)
class LocalInstallation:
    """A running installation and its addresses."""

    stack: EmbeddedStack
    settings: Settings
    api: str
    ui: str
    """Empty without the Web UI."""
    stand_ins: Mapping[str, str]
    """The address of each stand-in by its name."""

    @property
    def source(self) -> str:
        """The address of the sample source."""
        return self.stand_ins["source"]

    @property
    def admin_key(self) -> str:
        """The administrator's key."""
        return self.settings.api.admin_key.get_secret_value()


@asynccontextmanager
async def run_installation(
    settings: Settings,
    announce: Announce = announce_by_log,
    simulated_services: Collection[str] = (),
    forked: ForkedPreloader | None = None,
) -> AsyncIterator[LocalInstallation]:
    """Start an installation, yield when it serves, and stop it in order at the end.

    Args:
        announce: Gets a line about what takes long to start.
        simulated_services: The stand-ins to run, by the names that have a preferred port.
        forked: The preloader, if it was forked from this process already.
    """
    async with AsyncExitStack() as held:
        with _raise_failures_as_faults(settings.data_dir):
            require_no_unfinished_restore(settings.data_dir)
            preloader = Preloader(forked)
            stack = await held.enter_async_context(
                run_stack(
                    settings.data_dir,
                    ui=True,
                    announce=announce,
                    further_processes=[_build_preloader_process(preloader)],
                )
            )
            running = await held.enter_async_context(
                _prepare_and_run_forks_and_stand_ins(
                    stack, stack.build_settings(), preloader, NAMESPACE, simulated_services
                )
            )
            variables = stack.build_environment(running.settings)
            held.enter_context(write_environment_file_while_running(settings.data_dir, variables))
        yield running


@contextmanager
def _raise_failures_as_faults(data_dir: Path) -> Iterator[None]:
    """Turn what a start may raise into a fault: one sentence, and the file that has the rest."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "no reason given").rstrip(".")
        path = _save_traceback(error, data_dir)
        raise StartFailed("The installation", f"{type(error).__name__}: {reason}", log_path=path) from error


def _save_traceback(error: Exception, data_dir: Path) -> Path | None:
    """Write the traceback beside the logs; return the file, or None if it cannot be written."""
    path = data_dir / "logs" / "start.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return path


@asynccontextmanager
async def run_installation_on_stack(
    stack: EmbeddedStack,
    settings: Settings,
    namespace: str = NAMESPACE,
    *,
    simulated_services: Collection[str] = ("source",),
) -> AsyncIterator[LocalInstallation]:
    """Prepare the components, then run API, workers and stand-ins on them; stop these at the end.

    Args:
        settings: The settings of the components; ports of processes and the addresses of stand-ins are set here.
        namespace: The Temporal namespace of all of them.
        simulated_services: The stand-ins to run.
    """
    preloader = Preloader()
    async with (
        stack.run_processes(_build_preloader_process(preloader)),
        _prepare_and_run_forks_and_stand_ins(stack, settings, preloader, namespace, simulated_services) as running,
    ):
        yield running


@asynccontextmanager
async def _prepare_and_run_forks_and_stand_ins(
    stack: EmbeddedStack, settings: Settings, preloader: Preloader, namespace: str, simulated_services: Collection[str]
) -> AsyncIterator[LocalInstallation]:
    """Prepare the components and run the processes, all but the stand-ins as forks of the preloader."""
    simulated = {
        name: stack.reserve_port(name, port) for name, port in stand_ins.PORTS.items() if name in simulated_services
    }
    ports = {
        "api": stack.reserve_port("api", settings.api.port),
        **{
            name: stack.reserve_port(name, METRICS_PORT + n)
            for n, name in enumerate((*list_worker_names(), *list_api_names()))
        },
    }
    own = stand_ins.add_stand_ins_to_settings(_set_api_address_in_settings(settings, ports), simulated)
    await stack.supervisor.run_until_it_ends(
        _build_forked_process(preloader, COMMON_ROLE, "preparation", stack.build_environment(own, namespace), "migrate")
    )
    async with stack.run_processes(
        *_build_stand_ins_process(own, simulated),
        *(_build_api_process(stack, preloader, own, namespace, name, ports[name]) for name in list_api_names()),
        *(_build_worker_process(stack, preloader, own, namespace, name, ports[name]) for name in list_worker_names()),
    ):
        addresses = stack.addresses
        bases = {name: addresses[name] for name in simulated}
        yield LocalInstallation(stack, own, addresses["api"], addresses.get("ui", ""), bases)


def list_worker_names() -> list[str]:
    """Return the names of the worker processes: several, because encoding rows is bound by the processor."""
    return [f"worker-{number}" for number in range(1, WORKER_PROCESSES + 1)]


def list_api_names() -> list[str]:
    """Return the names of the API processes: several on one port, because requests are bound by the processor."""
    return [f"api-{number}" for number in range(1, API_PROCESSES + 1)]


def _set_api_address_in_settings(base: Settings, ports: Mapping[str, int]) -> Settings:
    """Return the settings with the ports of the processes."""
    return base.model_copy(
        update={
            "api": base.api.model_copy(update={"host": LOOPBACK, "port": ports["api"]}),
            "orders": base.orders.model_copy(update={"own_address": f"http://{LOOPBACK}:{ports['api']}"}),
        }
    )


def _build_stand_ins_process(settings: Settings, ports: Mapping[str, int]) -> list[ProcessSpec]:
    """Return the one process of all stand-ins, or none; it serves when the last of them does."""
    if not ports:
        return []
    ready = _build_http_check(list(ports.values())[-1], "/")
    return [
        _build_python_process(
            "stand-ins", "-m", "sims", *stand_ins.build_stand_in_arguments(settings, ports), ready=ready
        )
    ]


def _build_worker_process(
    stack: EmbeddedStack, preloader: Preloader, settings: Settings, namespace: str, name: str, metrics_port: int
) -> ProcessSpec:
    own = settings.model_copy(
        update={"worker": settings.worker.model_copy(update={"metrics_host": LOOPBACK, "metrics_port": metrics_port})}
    )
    env = stack.build_environment(own, namespace)
    ready, stop_seconds = _build_http_check(metrics_port, "/livez"), compute_worker_stop_seconds(settings)
    return _build_forked_process(preloader, "worker", name, env, "worker", ready, stop_seconds)


def _build_api_process(
    stack: EmbeddedStack, preloader: Preloader, settings: Settings, namespace: str, name: str, own_port: int
) -> ProcessSpec:
    own = settings.model_copy(update={"api": settings.api.model_copy(update={"own_port": own_port})})
    env = stack.build_environment(own, namespace)
    ready = _build_http_check(own_port, "/livez")
    return _build_forked_process(preloader, "api", name, env, "api", ready, API_STOP_SECONDS)


def _build_preloader_process(preloader: Preloader) -> ProcessSpec:
    async def require_common_role_loaded() -> None:
        # The components are prepared while the roles still import.
        if obstacle := preloader.describe_missing_roles([COMMON_ROLE]):
            raise NotReady(obstacle)

    return ProcessSpec(
        name=preloading.NAME,
        argv=[sys.executable, "-c", "from dev.embedded import fork_server; fork_server.main()"],
        env=preloading.build_environment(),
        folder=ROOT,
        ready=require_common_role_loaded,
        action="importing",
        fork=preloader.adopt_forked_preloader_once,
        attach=preloader.use_started_process,
        clean=preloader.wait_until_closed,
    )


def _build_forked_process(
    preloader: Preloader,
    role: str,
    name: str,
    env: Mapping[str, str],
    command: str,
    ready: ReadinessCheck | None = None,
    stop_timeout_seconds: float = 20.0,
) -> ProcessSpec:
    """Return the process that runs a command of `haulage` in a fork of the preloader."""
    own = {**collect_inherited_variables(), **env}

    async def fork_command_by_preloader(output: Path) -> ForkedProcess:
        return await preloader.fork_command(role, [command], own, ROOT, output)

    return ProcessSpec(
        name=name,
        argv=[command],
        env=own,
        folder=ROOT,
        ready=ready or do_nothing,
        action="starting" if role == COMMON_ROLE else "importing",
        fork=fork_command_by_preloader,
        stop_timeout_seconds=stop_timeout_seconds,
    )


def _build_http_check(port: int, path: str) -> ReadinessCheck:
    """Return a check that passes when one of our HTTP servers answers."""

    async def require_status_ok() -> None:
        try:
            status = await request_status(port, path)
        except OSError as error:
            raise NotReady(f"port {port} does not answer: {error}") from error
        if status != HTTPStatus.OK:
            raise NotReady(f"port {port} answers {status}")

    return require_status_ok


def _build_python_process(name: str, *arguments: str, ready: ReadinessCheck) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        argv=[sys.executable, *arguments],
        env=collect_inherited_variables(),
        folder=ROOT,
        ready=ready,
        action="importing",
        stop_timeout_seconds=20.0,
    )
