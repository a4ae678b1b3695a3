"""The files for several hosts agree with each other and with the compose file; units are read as systemd reads them."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

import worker
from infra.component_settings import DatabaseSettings
from infra.database import LOOKUP_CONNECTIONS
from lab import tools
from lab.certificates import Authority
from lab.hosts import find_closed_ancestor
from lab.topology import DEPLOY, load_topology
from lab.units import load_unit, parse_environment_file
from tests.support import deploy_files

ETC = DEPLOY / "hosts" / "etc"
TOPOLOGY = load_topology()
UNITS = sorted({unit for host in TOPOLOGY.hosts.values() for unit in host.units} | {"haulage-migrate"})
OURS = [name for name in UNITS if name.startswith("haulage-")]
CONNECTIONS = DatabaseSettings().pool_size + LOOKUP_CONNECTIONS + 1
"""What a process of Haulage opens: its pool, those for lookups, and the one beside the pool; listeners come on top."""
LISTENERS = {"haulage-api": 2, "haulage-worker@orders": 1}


def read_shipped(path: str) -> str | None:
    """Return a file below /etc as it is shipped; secrets are not."""
    file = ETC / path.removeprefix("/etc/")
    return file.read_text() if file.exists() else ("" if "secrets" in path or "host.env" in path else None)


@pytest.mark.parametrize("name", UNITS)
def test_every_unit_can_be_started(name: str) -> None:
    """Each unit of a host is a file that is understood whole, and what it reads is shipped."""
    unit = load_unit(name, "host1")

    arguments = unit.build_stand_in_arguments(unit.build_environment(read_shipped))

    assert arguments[0].startswith("/")
    assert not [word for word in arguments if "%" in word or "$" in word]
    assert unit.user != "root" or name in {"haproxy", "keepalived"}


@pytest.mark.parametrize("name", OURS)
def test_units_start_the_commands_of_compose(name: str) -> None:
    """What systemd starts is what the containers of the compose file and of Kubernetes start."""
    unit = load_unit(name, "host1")
    arguments = unit.build_stand_in_arguments(unit.build_environment(read_shipped))
    container = name.removeprefix("haulage-").replace("@", "-")
    by_name = {each.name: each for each in deploy_files.containers()}

    assert arguments[:3] == ["/opt/haulage/.venv/bin/python", "-m", "cli"]
    for kind in (f"compose/{container}", f"kubernetes/haulage-{container}"):
        assert arguments[3:] == by_name[kind].command
        assert unit.stop_seconds == by_name[kind].stop_seconds or container == "migrate"


def test_each_kind_of_work_is_on_two_hosts() -> None:
    """Any host may be lost: every queue has a worker on another one, and so has every service of the engine."""
    doubled = [*(name for name in UNITS if name.startswith(("haulage-worker@", "temporal@"))), "haulage-api", "haproxy"]
    served = {
        queue
        for name in UNITS
        if name.startswith("haulage-worker@")
        for queue in load_unit(name, "h").build_environment(read_shipped)["WORKER_QUEUES"].split()[1::2]
    }

    assert {name: len(TOPOLOGY.list_hosts(name)) for name in doubled} == dict.fromkeys(doubled, 2)
    assert served == set(worker.list_queue_names())
    for name in ("postgresql", "seaweedfs-master", "seaweedfs-volume"):
        assert len(TOPOLOGY.list_hosts(name)) == 3


def test_ports_of_one_host_differ() -> None:
    """Workers and Temporal's services on one host serve metrics on a port each."""
    for host in TOPOLOGY.hosts.values():
        environments = [load_unit(name, host.name).build_environment(read_shipped) for name in host.units]
        ports = [each.get("HAULAGE_WORKER__METRICS_PORT") or each.get("METRICS_PORT") for each in environments]
        used = [port for port in ports if port]
        assert len(used) == len(set(used)), host.name


def test_names_in_configurations_are_hosts() -> None:
    """Proxies, gateways, the database and Prometheus name the hosts that run what they look for."""
    proxy = (ETC / "haproxy/haproxy.cfg").read_text()
    servers = re.findall(r"^ +server (\S+) (\S+):\d+$", proxy, re.MULTILINE)
    standbys = re.search(r"ANY 1 \((.*)\)", (ETC / "postgresql/haulage.conf").read_text())
    scraped = yaml.safe_load((ETC / "prometheus/haulage.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped}
    expected = {
        (host, load_unit(name, host).build_environment(read_shipped)["HAULAGE_WORKER__METRICS_PORT"])
        for name in UNITS
        if name.startswith("haulage-worker@")
        for host in TOPOLOGY.list_hosts(name)
    }

    assert all(name == host for name, host in servers)
    assert {name for name, _ in servers} == {
        *TOPOLOGY.list_hosts("haulage-api"),
        *TOPOLOGY.list_hosts("temporal@frontend"),
        *TOPOLOGY.list_hosts("seaweedfs-s3"),
    }
    assert standbys is not None
    assert standbys[1].split(", ") == TOPOLOGY.list_hosts("postgresql")
    assert {tuple(each.split(":")) for each in targets["haulage-worker"]} == expected
    assert [each.partition(":")[0] for each in targets["haulage-api"]] == TOPOLOGY.list_hosts("haulage-api")
    assert f"{TOPOLOGY.addresses['haulage']}/24" in (ETC / "keepalived/keepalived.conf").read_text()
    for name, parts in {"seaweedfs-master": "seaweedfs-master", "seaweedfs-s3": "seaweedfs-filer"}.items():
        peers = re.search(r"-(?:peers|filer)=(\S+)", load_unit(name, "h").command)
        assert peers is not None
        assert [each.partition(":")[0] for each in peers[1].split(",")] == TOPOLOGY.list_hosts(parts)


def test_the_proxy_serves_no_metrics_to_the_outside() -> None:
    """They need no key, and name projects, platforms and types of tasks; `%6d` is an `m` for the API, too."""
    proxy = (ETC / "haproxy/haproxy.cfg").read_text()
    frontend = proxy.partition("frontend api\n")[2].partition("\n\n")[0]
    assert "http-request deny deny_status 404 if { ssl_fc } { path,url_dec /metrics }" in frontend


@pytest.mark.parametrize(("is_running", "copies"), [(True, True), (False, False), (False, True)])
def test_a_standby_loses_its_data_for_a_whole_copy_alone(tmp_path: Path, is_running: bool, copies: bool) -> None:
    """Run on the primary by mistake, or while the primary is away, the script removed what there was."""
    data = tmp_path / "haulage"
    data.mkdir()
    (data / "PG_VERSION").write_text("before")
    copy = 'for each in "$@"; do case "$each" in *.new) mkdir "$each"; echo copied > "$each/PG_VERSION";; esac; done'
    for name, text in (("pg_ctl", f"exit {0 if is_running else 3}"), ("pg_basebackup", copy if copies else "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    script = (DEPLOY / "hosts/join-standby.sh").read_text()
    script = script.replace("/var/lib/postgresql/haulage", str(data)).replace(
        "/usr/lib/postgresql/15/bin", str(tmp_path)
    )
    environment = {"PATH": f"{tmp_path}:{os.defpath}", "REPLICATION_PASSWORD": "p"}
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)

    is_replaced = copies and not is_running
    assert (done.returncode == 0) is is_replaced, done.stderr
    assert (data / "PG_VERSION").read_text().strip() == ("copied" if is_replaced else "before")
    assert ("stop it first" in done.stderr) is is_running


def test_the_database_has_a_connection_for_everybody() -> None:
    """All pools together are fewer than max_connections, with three left for operators."""
    text = (ETC / "postgresql/haulage.conf").read_text()
    allowed = int(re.search(r"^max_connections = (\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    engine = (ETC / "temporal/temporal.yaml").read_text()
    per_service = sum(map(int, re.findall(r"maxConns: (\d+)", engine)))
    per_filer = int(re.search(r"connection_max_open = (\d+)", (ETC / "seaweedfs/filer.toml").read_text())[1])  # type: ignore[index]
    placed = [unit for host in TOPOLOGY.hosts.values() for unit in host.units]
    ours = sum(CONNECTIONS + LISTENERS.get(unit, 0) for unit in placed if unit.startswith("haulage-"))
    others = sum(unit.startswith("temporal@") for unit in placed) * per_service
    others += placed.count("seaweedfs-filer") * per_filer

    assert ours + others <= allowed - 3


def test_the_database_of_compose_has_a_connection_for_everybody() -> None:
    """Temporal's one process opens the pools of its four services."""
    services = deploy_files.compose()["services"]
    allowed = int(services["postgres"]["command"][-1].partition("=")[2])
    engine = services["temporal"]["environment"]
    pools = int(engine["SQL_MAX_CONNS"]) + int(engine["SQL_VIS_MAX_CONNS"])
    processes = sum(
        each["deploy"].get("replicas", 1) for each in services.values() if each["image"] == deploy_files.OUR_IMAGE
    )

    assert 4 * pools + processes * CONNECTIONS + sum(LISTENERS.values()) <= allowed - 3


def test_a_directive_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    """The lab must not leave out what a host would do."""
    (tmp_path / "odd.service").write_text("[Service]\nExecStart=/bin/true\nSupplementaryGroups=disk\n")

    with pytest.raises(ValueError, match="SupplementaryGroups"):
        load_unit("odd", "h", tmp_path)


def test_variables_are_put_into_command_lines(tmp_path: Path) -> None:
    """`$NAME` becomes its words, `${NAME}` stays within one; specifiers are replaced first."""
    text = '[Service]\nEnvironment=A=1 "B=x y"\nExecStart=/bin/x $A $B --b=${B} %i-%H "q r"\nKillSignal=SIGINT\n'
    (tmp_path / "x@.service").write_text(text)
    unit = load_unit("x@one", "h", tmp_path)

    assert unit.build_stand_in_arguments(unit.environment) == ["/bin/x", "1", "x", "y", "--b=x y", "one-h", "q r"]
    assert unit.kill_signal is signal.SIGINT
    assert not unit.restarts


def test_a_missing_environment_file_stops_the_unit_unless_it_may_be_missing() -> None:
    """As systemd: a `-` before the path."""
    unit = load_unit("haulage-api", "h")

    assert "HAULAGE_API__PORT" in unit.build_environment(
        lambda path: None if "host.env" in path else "HAULAGE_API__PORT=1"
    )
    with pytest.raises(FileNotFoundError, match="secrets"):
        unit.build_environment(lambda path: None if "secrets" in path else "")


def test_environment_files_are_read() -> None:
    """Comments and empty lines are left out, quotes around a value removed, those within kept."""
    text = '# c\n\nA=1\nB=\'["k"]\'\nC=["k"]\n'

    assert parse_environment_file(text) == {"A": "1", "B": '["k"]', "C": '["k"]'}


def test_certificates_are_good_for_their_names(tmp_path: Path) -> None:
    """A context that trusts the authority loads them, and the key fits."""
    authority = Authority()
    certificate, key = authority.issue("database", "10.99.0.6")
    (tmp_path / "c.pem").write_text(certificate)
    (tmp_path / "c.key").write_text(key)
    context = ssl.create_default_context(cadata=authority.certificate)

    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "c.key")

    (decoded,) = [each for each in context.get_ca_certs() if each["subject"]]
    assert decoded["subject"] == ((("commonName", "Haulage's lab"),),)


def test_a_closed_folder_above_python_is_found(tmp_path: Path) -> None:
    """Users of their own cannot enter it, so that a host shows what lies below by another way."""
    tmp_path.chmod(0o700)

    found = Path(find_closed_ancestor(tmp_path / "bin"))

    assert not found.stat().st_mode & 0o001
    assert tmp_path.is_relative_to(found)


def test_temporal_is_built_in_the_version_that_is_shipped() -> None:
    """The version comes from the compose file."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", tools.read_temporal_version())
