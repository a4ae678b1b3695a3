"""The embedded stack: engine, database and object store, started together, on the loopback address only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from dev.embedded import database, engine, keys, record, store
from dev.embedded.keys import Keys
from dev.embedded.part import Part
from dev.embedded.ports import LOOPBACK, Ports, claiming
from dev.embedded.supervisor import Supervisor, supervised
from dev.embedded.variables import as_variables
from infra.settings import EmbeddedSettings, SecretSettings, Settings


@dataclass(frozen=True)
class Stack:
    """The running parts, and a place for more of them."""

    data_dir: Path
    keys: Keys
    ports: Ports
    record: record.Record
    supervisor: Supervisor

    @property
    def addresses(self) -> dict[str, str]:
        """Where the parts are reached, by name."""
        return dict(self.record.run.addresses)

    def database_url(self, name: str = database.DATABASE) -> str:
        """The address of a database of the embedded PostgreSQL, for SQLAlchemy."""
        return database.url(self.ports.chosen[database.NAME], self.keys.database_password, name)

    def settings(self) -> Settings:
        """The settings of this process, with the embedded parts in place."""
        own = Settings()
        store_address = f"{LOOPBACK}:{self.ports.chosen[store.NAME]}"
        objects = {"endpoint": store_address, "secure": False, "region": store.REGION, "bucket": store.BUCKET}
        secret_key = SecretStr(self.keys.object_secret_key)
        changes = {
            "data_dir": self.data_dir,
            "database": own.database.model_copy(update={"url": SecretStr(self.database_url())}),
            "objects": own.objects.model_copy(
                update={**objects, "access_key": keys.ACCESS_KEY, "secret_key": secret_key}
            ),
            "engine": own.engine.model_copy(update={"ui_url": self.addresses.get("ui", "")}),
            "api": own.api.model_copy(update={"admin_key": SecretStr(self.keys.admin_key)}),
            "secrets": SecretSettings(seal=[SecretStr(self.keys.seal)], pepper=SecretStr(self.keys.pepper)),
        }
        return own.model_copy(update=changes)

    def environment(self, settings: Settings | None = None, namespace: str = engine.NAMESPACE) -> dict[str, str]:
        """The settings, and the way to the engine, as variables for other processes."""
        return {
            **as_variables(settings or self.settings()),
            "TEMPORAL_ADDRESS": self.addresses[engine.NAME],
            "TEMPORAL_NAMESPACE": namespace,
        }

    def claim_port(self, name: str, wish: int) -> int:
        """A port for a part that is yet to be added: the wished one, or another when it is taken."""
        port = self.ports.claim(name, wish)
        self.record.run.ports[name] = port
        self.record.run.addresses[name] = f"http://{LOOPBACK}:{port}"
        self.record.save()
        return port

    @asynccontextmanager
    async def adding(self, *parts: Part) -> AsyncIterator[None]:
        """Supervise more processes until the block ends; it begins when all of them serve."""
        await self.supervisor.start(*parts)
        try:
            yield
        finally:
            await self.supervisor.stop_parts(*parts)

    def kill(self, name: str) -> None:
        """SIGKILL a part; it is started again on the same port."""
        self.supervisor.kill(name)

    async def ready(self, name: str) -> None:
        """Wait until a part serves (again)."""
        await self.supervisor.ready(name)

    def pids(self) -> dict[str, int]:
        """The processes that run now, by part."""
        return self.supervisor.pids()


@asynccontextmanager
async def embedded(
    data_dir: Path, *, ui: bool, for_tests: bool = False, ports: EmbeddedSettings | None = None
) -> AsyncIterator[Stack]:
    """Start the parts and yield when all of them serve; stop them at the end.

    Must be entered on a thread that lives as long as the parts: they die with it.

    Args:
        data_dir: Folder of everything that outlives a run.
        ui: Whether the Temporal Web UI is served.
        for_tests: Whether workflows may ask for skipped time, and what parts write may be lost in a power cut.
        ports: Wished ports; each moves aside when it is taken.
    """
    data_dir = _made(data_dir)
    with record.held(data_dir) as run, claiming(run.run.ports) as chosen:
        await run.sweep()
        wishes = ports or EmbeddedSettings()
        secrets = keys.load(data_dir / "secrets.json")
        parts = _parts(data_dir, chosen, wishes, secrets, ui=ui, for_tests=for_tests)
        run.run.ports = dict(chosen.chosen)
        run.run.addresses = _addresses(chosen.chosen)
        record.announce(run)
        async with supervised(run, data_dir / "logs") as supervisor:
            await supervisor.start(*parts)
            yield Stack(data_dir, secrets, chosen, run, supervisor)


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.absolute()


def _parts(
    data_dir: Path, chosen: Ports, wishes: EmbeddedSettings, secrets: Keys, *, ui: bool, for_tests: bool
) -> list[Part]:
    # The wished ports first: an inner port must not sit on one of them.
    database_port = chosen.claim(database.NAME, wishes.database_port)
    store_port = chosen.claim(store.NAME, wishes.store_port)
    engine_port = chosen.claim(engine.NAME, wishes.engine_port)
    ui_port = chosen.claim("ui", wishes.ui_port) if ui else None
    folders = {name: data_dir / name for name in (database.NAME, store.NAME, engine.NAME)}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    return [
        database.part(folders[database.NAME], database_port, secrets.database_password, for_tests=for_tests),
        store.part(folders[store.NAME], store_port, chosen, secrets.object_secret_key, for_tests=for_tests),
        engine.part(folders[engine.NAME], engine_port, chosen, ui_port=ui_port, for_tests=for_tests),
    ]


def _addresses(ports: dict[str, int]) -> dict[str, str]:
    http = {name: f"http://{LOOPBACK}:{ports[name]}" for name in (store.NAME, "ui") if name in ports}
    plain = {name: f"{LOOPBACK}:{ports[name]}" for name in (engine.NAME, database.NAME)}
    return {**plain, **http}
