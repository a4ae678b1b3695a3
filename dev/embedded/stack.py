"""The embedded stack: engine, database and object store, started together on the loopback address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from dev.embedded import components
from dev.embedded.components import DATABASE, DATABASE_NAME, ENGINE, NAMESPACE, STORE
from dev.embedded.environment import remove_environment_file
from dev.embedded.ports import LOOPBACK, PortReservations, reserve_ports
from dev.embedded.processes import Announce, announce_by_log
from dev.embedded.run_file import (
    RunFile,
    create_data_folder,
    lock_data_dir,
    record_supervisor,
    record_version,
    require_free_disk_space,
    require_no_data_of_other_versions,
)
from dev.embedded.secrets import EmbeddedSecrets, load_or_create_secrets
from dev.embedded.supervisor import ProcessSpec, ProcessSupervisor, run_supervisor
from infra.component_settings import EmbeddedPortSettings, TlsSettings
from infra.settings import Settings

PLAIN: Final = {"secure": False, "tls": TlsSettings()}
"""The embedded components listen on the loopback address only."""


@dataclass(frozen=True)
class EmbeddedStack:
    """The running components, and the supervisor of further processes."""

    data_dir: Path
    secrets: EmbeddedSecrets
    ports: PortReservations
    run_file: RunFile
    supervisor: ProcessSupervisor

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the components by name."""
        return dict(self.run_file.state.addresses)

    def build_database_url(self, name: str = DATABASE_NAME) -> str:
        """Return the URL of a database of the embedded PostgreSQL, for SQLAlchemy."""
        return components.build_database_url(self.ports.by_name[DATABASE], self.secrets.database_password, name)

    def build_settings(self) -> Settings:
        """Return the settings of this process with the addresses of the embedded components."""
        own = Settings()
        store_address = f"{LOOPBACK}:{self.ports.by_name[STORE]}"
        objects = {"endpoint": store_address, **PLAIN, "region": components.REGION, "bucket": components.BUCKET}
        secret_key = SecretStr(self.secrets.object_secret_key)
        changes = {
            "data_dir": self.data_dir,
            "database": own.database.model_copy(update={"url": SecretStr(self.build_database_url()), **PLAIN}),
            "objects": own.objects.model_copy(
                update={**objects, "access_key": components.ACCESS_KEY, "secret_key": secret_key}
            ),
            "engine": own.engine.model_copy(update={"ui_url": self.addresses.get("ui", "")}),
            "api": own.api.model_copy(update={"admin_key": SecretStr(self.secrets.admin_key)}),
            "secrets": own.secrets.model_copy(
                update={
                    "seal": list(map(SecretStr, (self.secrets.seal, *self.secrets.old.get("seal", [])))),
                    "pepper": SecretStr(self.secrets.pepper),
                    "other_peppers": [*map(SecretStr, self.secrets.old.get("pepper", [])), *own.secrets.other_peppers],
                }
            ),
        }
        return own.model_copy(update=changes)

    def build_environment(self, settings: Settings | None = None, namespace: str = NAMESPACE) -> dict[str, str]:
        """Return the settings and the address of the engine as environment variables for other processes."""
        return {
            **to_environment_variables(settings or self.build_settings()),
            "TEMPORAL_ADDRESS": self.addresses[ENGINE],
            "TEMPORAL_NAMESPACE": namespace,
        }

    def reserve_port(self, name: str, preferred: int) -> int:
        """Return a port for a process that is to be added: the preferred one, or another if it is taken."""
        port = self.ports.reserve(name, preferred)
        self.run_file.state.ports[name] = port
        self.run_file.state.addresses[name] = f"http://{LOOPBACK}:{port}"
        self.run_file.save()
        return port

    @asynccontextmanager
    async def run_processes(self, *specs: ProcessSpec) -> AsyncIterator[None]:
        """Run further processes while the block runs; it begins when all of them serve."""
        await self.supervisor.start(*specs)
        try:
            yield
        finally:
            await self.supervisor.stop_group(*specs)

    def kill_and_let_restart(self, name: str) -> None:
        """Send SIGKILL to a process; it is restarted on the same port."""
        self.supervisor.kill_and_let_restart(name)

    async def wait_until_ready(self, name: str) -> None:
        """Wait until a process serves (again)."""
        await self.supervisor.wait_until_ready(name)

    def list_pids(self) -> dict[str, int]:
        """Return the pids of the running processes by name."""
        return self.supervisor.list_pids()


@asynccontextmanager
async def run_stack(
    data_dir: Path,
    *,
    ui: bool,
    for_tests: bool = False,
    ports: EmbeddedPortSettings | None = None,
    announce: Announce = announce_by_log,
    further_processes: Sequence[ProcessSpec] = (),
) -> AsyncIterator[EmbeddedStack]:
    """Start the components, yield when all of them serve, and stop them at the end.

    Enter it on a thread that lives as long as the components: they die with that thread.

    Args:
        data_dir: The folder of all data.
        ui: Whether to serve Temporal's Web UI.
        for_tests: Whether workflows may skip time, and writes may be lost in a power cut.
        ports: The preferred ports; another is used where one is taken.
        announce: Gets a line about what takes long to start.
        further_processes: Further processes, which start together with the components.
    """
    data_dir = create_data_folder(data_dir)
    require_free_disk_space(data_dir)
    require_no_data_of_other_versions(data_dir)
    with lock_data_dir(data_dir) as run_file, reserve_ports(run_file.state.ports, announce) as claimed:
        if run_file.damage:
            announce(run_file.damage)
        await run_file.end_leftover_processes_and_clear_recorded_parts(announce)
        preferred = ports or EmbeddedPortSettings()
        secrets = load_or_create_secrets(data_dir)
        record_version(data_dir)
        specs = _build_components(data_dir, claimed, preferred, secrets, ui=ui, for_tests=for_tests)
        run_file.state.ports = dict(claimed.by_name)
        run_file.state.addresses = _build_addresses(claimed.by_name)
        # Of a supervisor that was killed: its ports and secrets need not be those of this one.
        remove_environment_file(data_dir)
        record_supervisor(run_file)
        async with run_supervisor(run_file, data_dir / "logs", announce) as supervisor:
            await supervisor.start(*further_processes, *specs)
            yield EmbeddedStack(data_dir, secrets, claimed, run_file, supervisor)


def _build_components(
    data_dir: Path,
    ports: PortReservations,
    preferred: EmbeddedPortSettings,
    secrets: EmbeddedSecrets,
    *,
    ui: bool,
    for_tests: bool,
) -> list[ProcessSpec]:
    # The preferred ports first: an internal port must not take one of them.
    database_port = ports.reserve(DATABASE, preferred.database_port)
    store_port = ports.reserve(STORE, preferred.store_port)
    engine_port = ports.reserve(ENGINE, preferred.engine_port)
    ui_port = ports.reserve("ui", preferred.ui_port) if ui else None
    folders = {name: data_dir / name for name in (DATABASE, STORE, ENGINE)}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    return [
        components.build_database_process(
            folders[DATABASE],
            database_port,
            [secrets.database_password, *secrets.old.get("database_password", [])],
            for_tests=for_tests,
        ),
        components.build_store_process(
            folders[STORE], store_port, ports, secrets.object_secret_key, for_tests=for_tests
        ),
        components.build_engine_process(folders[ENGINE], engine_port, ports, ui_port=ui_port, for_tests=for_tests),
    ]


def _build_addresses(ports: dict[str, int]) -> dict[str, str]:
    http = {name: f"http://{LOOPBACK}:{ports[name]}" for name in (STORE, "ui") if name in ports}
    plain = {name: f"{LOOPBACK}:{ports[name]}" for name in (ENGINE, DATABASE)}
    return {**plain, **http}


def to_environment_variables(settings: Settings) -> dict[str, str]:
    """Return settings as `HAULAGE_…` variables, with secrets in plain text: for the environment of a child only."""
    prefix = settings.model_config.get("env_prefix") or ""
    return {
        prefix + name: _format_setting_as_variable(value)
        for name, value in _flatten_settings(settings.model_dump())
        if value is not None
    }


def _flatten_settings(tree: dict[str, Any]) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            leaves += [(f"{name.upper()}__{inner}", leaf) for inner, leaf in _flatten_settings(value)]
        else:
            leaves.append((name.upper(), value))
    return leaves


def _format_setting_as_variable(value: Any) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case str() | Path():
            return str(value)
        case _:
            return json.dumps(value, default=_format_setting_as_variable)
