"""The settings with which systems use stand-ins: only for what is not configured, and only for those that run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from cli.up import EXAMPLES, build_data_dir_option, describe_installation
from dev import stand_ins
from dev.local import LocalInstallation
from infra.component_settings import GseSettings
from infra.settings import OrderSettings, Settings
from sims.__main__ import STAND_INS

PORTS = {name: 20_000 + number for number, name in enumerate(stand_ins.PORTS)}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Nothing is configured."""
    monkeypatch.chdir(tmp_path)
    return Settings(data_dir=tmp_path)


def test_without_stand_ins_nothing_changes(settings: Settings) -> None:
    """No port is opened, and no system leads anywhere."""
    assert stand_ins.add_stand_ins_to_settings(settings, {}) == settings


def test_every_system_uses_its_stand_in(settings: Settings) -> None:
    """Their ports alone are opened in the guard."""
    configured = stand_ins.add_stand_ins_to_settings(settings, PORTS)

    assert configured.guard.allow == [f"127.0.0.1:{port}" for port in PORTS.values()]
    assert configured.gse.base_url == f"http://127.0.0.1:{PORTS['gse']}"
    assert configured.transfers.repository.startswith(f"http://127.0.0.1:{PORTS['repository']}/files/")
    assert configured.addresses.pubsub.base_url == f"http://127.0.0.1:{PORTS['pubsub']}"
    assert configured.addresses.modules.od.base_url == f"http://127.0.0.1:{PORTS['modules']}/od"
    assert configured.orders.credentials_folder == stand_ins.get_credentials_folder(settings)


def test_what_is_configured_stays(settings: Settings, tmp_path: Path) -> None:
    """A stand-in takes the place of nothing that an operator has set."""
    own = settings.model_copy(
        update={
            "gse": GseSettings(base_url="https://gse.example.com", app_code="ours", app_secret=SecretStr("s3cret")),
            "orders": OrderSettings(credentials_folder=tmp_path / "ours"),
            "addresses": settings.addresses.model_copy(
                update={"pubsub": settings.addresses.pubsub.model_copy(update={"project": "ours"})}
            ),
        }
    )

    configured = stand_ins.add_stand_ins_to_settings(own, PORTS)

    assert configured.model_copy(update={"guard": own.guard}) == own


def test_each_port_has_a_stand_in() -> None:
    """The names that are started are those that are served."""
    assert list(STAND_INS) == list(stand_ins.PORTS)


@pytest.mark.parametrize("names", [(), tuple(stand_ins.PORTS)], ids=["without", "with"])
def test_only_stand_ins_that_run_are_printed(settings: Settings, names: tuple[str, ...]) -> None:
    """With a command to paste for each system; without them there is nothing to try."""
    addresses = {name: f"http://127.0.0.1:{PORTS[name]}" for name in names}
    running = LocalInstallation(None, settings, "http://127.0.0.1:8080", "", addresses)  # type: ignore[arg-type]

    lines = describe_installation(running, "hlg_key")

    assert sum(f"127.0.0.1:{port}/" in line for line in lines for port in PORTS.values()) >= len(names)
    assert sum(line.startswith("  .venv/bin/haulage ") for line in lines) == (len(EXAMPLES) if names else 0)
    assert any("hlg_key" in line for line in lines)
    commands = [line for line in lines if line.startswith("  .venv/bin/haulage ")]
    assert all(line.endswith(f" --data-dir {settings.data_dir}") for line in commands), "the folder is not the default"
    assert build_data_dir_option(Path(".haulage").absolute()) == ""
