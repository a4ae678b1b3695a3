"""The lab as an installation under test: stand-ins outside, and what the checkers of systems ask of a deployment."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import asyncpg
from pydantic import SecretStr

from dev.local import LocalInstallation
from infra.settings import Settings
from lab.configuration import OUTSIDE
from lab.running import Lab, Say, running_lab
from lab.tools import FOLDER, prepare_tools
from lab.topology import HostSpec, load_topology
from sims.gse.disks import HostDisks
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from sims.oss.server import TOKEN, running_oss
from sims.platforms.server import running_platforms
from sims.pubsub.broker import Broker
from sims.pubsub.server import running_pubsub
from sims.receiver import running_receiver
from sims.source import running_source
from tests.cluster.record import Answers
from tests.support import transfers
from tests.support.deployment import IDLE, PUSH_SECRET, Deployment
from tests.support.pubsub import publisher

CALL_TIMEOUT = aiohttp.ClientTimeout(sock_connect=3, sock_read=20)
"""As a patient business system has it: the answer of a request may take a time-out of ours and a retry."""
QUERY_SECONDS = 20.0
CREDENTIALS_ON_HOSTS = "/opt/haulage/.haulage-lab/outside/credentials"
"""Every host sees the checkout, so that a test can lay credentials down while the lab runs."""
QUICK: Mapping[str, object] = {
    "ADDRESSES__PAUSE_SECONDS": 1.0,
    "ADDRESSES__FAILED_CYCLES_MAX": 1_000,
    "ADDRESSES__GROUP_MESSAGES_MAX": 20,
    "ADDRESSES__PUSH__SECRET": PUSH_SECRET,
    "ORDERS__SERVE_SECONDS": 1.0,
    "TRANSFERS__WINDOW_SECONDS": 2,
    "TRANSFERS__TIMEOUT_SECONDS": 300,
    "GSE__APP_CODE": "haulage",
    "GSE__APP_SECRET": transfers.GSE_SECRET,
    "TASKS__LANE_MAX_TASKS": 500,
    "ORDERS__CREDENTIALS_FOLDER": CREDENTIALS_ON_HOSTS,
    "ADDRESSES__CREDENTIALS_FOLDER": CREDENTIALS_ON_HOSTS,
}
"""Short windows and pauses, so that a fault of seconds finds work under way."""


@dataclass(frozen=True)
class LabDeployment(Deployment):
    """A lab in the form in which the checkers of `tests/support` ask it."""

    lab: Lab
    answers: Answers = field(default_factory=Answers)

    @property
    def source(self) -> str:
        """The base address of the sample source."""
        return self.installation.source

    async def connect_database(self) -> asyncpg.Connection[asyncpg.Record]:
        """Open a connection to the primary, as an operator of Haulage's database."""
        context = ssl.create_default_context(cadata=self.lab.configuration.authority)
        return await asyncpg.connect(
            host=self.lab.topology.addresses["database"],
            user="haulage",
            password=self.lab.configuration.secrets.database,
            database="haulage",
            ssl=context,
            timeout=5,
            command_timeout=QUERY_SECONDS,
        )


@asynccontextmanager
async def running_lab_deployment(say: Say, changes: Mapping[str, object] | None = None) -> AsyncIterator[LabDeployment]:
    """Start stand-ins outside and the lab; the systems of the lab use these stand-ins.

    Args:
        changes: Settings that replace those of `QUICK`.
    """
    async with AsyncExitStack() as held:
        folder = FOLDER / "outside"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("modules", "credentials"):
            (folder / name).mkdir(parents=True)
        platforms = await held.enter_async_context(running_platforms())
        disks = HostDisks(folder / "gse", links=True)
        world = GseWorld(transfers.QUICK, disks)
        gse = await held.enter_async_context(running_gse(world))
        oss = await held.enter_async_context(running_oss(folder / "modules"))
        sim = await held.enter_async_context(running_pubsub(Broker(IDLE)))
        publishing = await held.enter_async_context(publisher(sim.base))
        receiver = await held.enter_async_context(running_receiver())
        source = await held.enter_async_context(running_source())
        for stand_in in (platforms, oss, receiver, source):
            stand_in.base = _as_seen_from_hosts(stand_in.base)
        local = _build_variables(_as_seen_from_hosts(gse), oss.base, changes or {})
        (folder / "credentials" / "oss.json").write_text(json.dumps({"token": TOKEN}))

        def build_local(host: HostSpec) -> dict[str, str]:
            cache = FOLDER / "hosts" / host.name / "var" / "lib" / "haulage" / "transfers"
            agent = {"HAULAGE_GSE__SOURCE_AGENT_ID": f"0:{host.address}", "HAULAGE_GSE__SOURCE_FOLDER": str(cache)}
            return {**local, **agent}

        lab = await held.enter_async_context(running_lab(load_topology(), prepare_tools(), say, build_local))
        admin_key = lab.configuration.secrets.admin_key
        installation = SimpleNamespace(
            api=lab.api, source=source.base, admin_key=admin_key, settings=_build_settings(lab, folder)
        )
        headers = {"Authorization": f"Bearer {admin_key}"}
        session = await held.enter_async_context(aiohttp.ClientSession(headers=headers, timeout=CALL_TIMEOUT))
        yield LabDeployment(
            cast("LocalInstallation", installation),
            "haulage", session, platforms, world, disks, oss, sim, publishing, receiver, lab,
        )  # fmt: skip


def _as_seen_from_hosts(base: str) -> str:
    return base.replace("127.0.0.1", OUTSIDE)


def _build_variables(gse: str, modules: str, changes: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that lead every process of Haulage to the stand-ins."""
    found = {f"HAULAGE_{name}": str(value) for name, value in {**QUICK, **changes}.items()}
    found |= {"HAULAGE_GUARD__ALLOW": json.dumps([OUTSIDE]), "HAULAGE_GSE__BASE_URL": gse}
    for module in ("ed", "im", "wfm", "od"):
        prefix = f"HAULAGE_ADDRESSES__MODULES__{module.upper()}__"
        found |= {f"{prefix}BASE_URL": f"{modules}/{module}", f"{prefix}CREDENTIALS": "oss", f"{prefix}BATCH": "50"}
        found |= {f"{prefix}BREAKER_SECONDS": "1"}
    return found


def _build_settings(lab: Lab, folder: Path) -> Settings:
    """Return the settings with which a test reaches the store of the lab, and where it lays credentials."""
    own = Settings(_env_file=None)
    objects = own.objects.model_copy(
        update={
            "endpoint": f"{lab.topology.addresses['haulage']}:8333",
            "secret_key": SecretStr(lab.configuration.secrets.store_key),
        }
    )
    orders = own.orders.model_copy(update={"credentials_folder": folder / "credentials"})
    return own.model_copy(update={"objects": objects, "orders": orders, "data_dir": folder})
