"""The stand-ins of a local installation: their ports, and the settings that make each system use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from infra.address_settings import AddressSettings, AllModulesSettings, ModuleSettings
from infra.component_settings import GseSettings
from infra.settings import OrderSettings, Settings, TransferSettings

HOST: Final = "127.0.0.1"
PORTS: Final[Mapping[str, int]] = {
    "source": 8091,
    "repository": 8092,
    "gse": 8093,
    "platforms": 8094,
    "pubsub": 8095,
    "modules": 8096,
}
"""The preferred port of each stand-in, by the name that `python -m sims` gives it."""
PUBSUB_PROJECT: Final = "stand-in"
WINDOW_SECONDS: Final = 3
"""Requests within this time share a transfer; less than in production, so that a trial is short."""


def add_stand_ins_to_settings(settings: Settings, ports: Mapping[str, int]) -> Settings:
    """Return settings with which each system uses the stand-ins at these ports; what is configured otherwise stays."""
    base = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    allow = [*settings.guard.allow, *(f"{HOST}:{port}" for port in ports.values())]
    changes: dict[str, object] = {"guard": settings.guard.model_copy(update={"allow": allow})}
    if "gse" in base and not settings.gse.base_url:
        changes |= {
            "gse": _point_gse_settings_to_stand_in(settings.gse, base["gse"], settings.data_dir),
            "transfers": _point_repository_settings_to_stand_in(settings.transfers, base["repository"]),
        }
    if "platforms" in base:
        changes["orders"] = _set_credentials_folder(settings.orders, get_credentials_folder(settings))
    if "modules" in base and not settings.addresses.pubsub.project:
        folder = get_credentials_folder(settings)
        changes["addresses"] = _point_module_settings_to_stand_ins(
            settings.addresses, base["pubsub"], base["modules"], folder
        )
    return settings.model_copy(update=changes)


def build_stand_in_arguments(settings: Settings, ports: Mapping[str, int]) -> list[str]:
    """Return the arguments of `python -m sims` for the stand-ins at these ports."""
    from domain.addresses.messages import Topic  # noqa: PLC0415 - `haulage up` without stand-ins does not need it

    names = settings.addresses.pubsub.subscriptions
    project = f"projects/{PUBSUB_PROJECT}"
    subscriptions = zip(Topic, (names.swap, names.create_update, names.delete), strict=True)
    return [
        *(f"{name}={port}" for name, port in ports.items()),
        f"--folder={settings.data_dir / 'stand-ins'}",
        f"--credentials={get_credentials_folder(settings)}",
        *(f"--subscription={project}/topics/{topic}={project}/subscriptions/{name}" for topic, name in subscriptions),
    ]


def get_credentials_folder(settings: Settings) -> Path:
    """Return the folder where the stand-ins lay down the credentials that they take."""
    return settings.data_dir / "stand-ins" / "credentials"


def _point_gse_settings_to_stand_in(gse: GseSettings, base: str, data_dir: Path) -> GseSettings:
    return gse.model_copy(
        update={
            "base_url": base,
            "app_code": "haulage",
            "app_secret": SecretStr("stand-in"),
            "source_agent_id": "stand-in:this-machine",
            "cache_folder": data_dir / "transfers",
        }
    )


def _point_repository_settings_to_stand_in(transfers: TransferSettings, base: str) -> TransferSettings:
    return transfers.model_copy(update={"repository": f"{base}/files/{{signature}}", "window_seconds": WINDOW_SECONDS})


def _set_credentials_folder(orders: OrderSettings, folder: Path) -> OrderSettings:
    is_default = orders.credentials_folder == OrderSettings().credentials_folder
    return orders.model_copy(update={"credentials_folder": folder}) if is_default else orders


def _point_module_settings_to_stand_ins(
    addresses: AddressSettings, pubsub: str, modules: str, folder: Path
) -> AddressSettings:
    from domain.addresses.operations import Module  # noqa: PLC0415 - as above

    called = {
        module.value: ModuleSettings(base_url=f"{modules}/{module}", credentials="modules", batch=500)
        for module in Module
    }
    return addresses.model_copy(
        update={
            "credentials_folder": folder,
            "modules": AllModulesSettings(**called),
            "pubsub": addresses.pubsub.model_copy(update={"project": PUBSUB_PROJECT, "base_url": pubsub}),
        }
    )
