"""Settings that all deployments pass, the disk for large books, and the order in which Kubernetes gets its objects."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from excel.archive import CheckedDeflatedPiece, SpooledPieces
from lab.units import load_unit, parse_environment_file
from tests.support import deploy_files
from tests.support.deploy_files import Tree

HOW_TO = deploy_files.FOLDER.parent / "docs" / "how-to"
OBJECTS = deploy_files.manifests()
PODS = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"]
    for each in OBJECTS
    if each["kind"] in {"Deployment", "Job"}
}
SERVICES = {
    name: each for name, each in deploy_files.compose()["services"].items() if each["image"] == deploy_files.OUR_IMAGE
}


def test_every_deployment_names_the_version_that_is_replaced() -> None:
    """An upgrade sets one variable, which is empty until then."""
    name = "HAULAGE_ENGINE__COMPATIBLE_WITH"
    hosts = parse_environment_file((deploy_files.FOLDER / "hosts/etc/haulage/haulage.env").read_text())
    given = {each.environment.get(name) for each in deploy_files.containers() if each.ours}

    assert hosts[name] == ""
    assert given == {"", f"${{{name}:-}}"}
    assert f"# {name}=" in (deploy_files.FOLDER / ".env.example").read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_compose_passes_settings_that_it_does_not_name(name: str) -> None:
    """They come from a file that may be missing."""
    assert SERVICES[name]["env_file"] == [{"path": "haulage.env", "required": False}]


def test_large_books_lie_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests below say where that is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = SpooledPieces()

    spool.add(CheckedDeflatedPiece(bytes(5 * 1024 * 1024), 0, 0))

    opened = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert len([each for each in opened if each.is_relative_to(tmp_path)]) == 1


@pytest.mark.parametrize("name", SERVICES)
def test_temporary_files_of_compose_are_on_disk(name: str) -> None:
    """`/tmp` is a volume: a tmpfs counts against the limit of memory."""
    assert SERVICES[name]["tmpfs"] == []
    assert "/tmp" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", PODS)
def test_temporary_files_of_pods_are_on_disk(name: str) -> None:
    """On the node's, and no more than it may hold."""
    (volume,) = [each["emptyDir"] for each in PODS[name]["volumes"] if each["name"] == "tmp"]

    assert {"name": "tmp", "mountPath": "/tmp"} in PODS[name]["containers"][0]["volumeMounts"]
    assert volume == {"sizeLimit": "1Gi"}


def test_temporary_files_of_units_are_on_disk() -> None:
    """Debian 13 has `/tmp` in memory, and `/var/tmp` never."""
    assert load_unit("haulage-worker@downloads-fetch", "work1").environment["TMPDIR"] == "/var/tmp"


def test_the_migration_and_what_it_needs_are_applied_first() -> None:
    """Nothing that would end without it has the label by which they are chosen."""
    first = {each["kind"] for each in OBJECTS if _is_first(each)}
    rest = {each["kind"] for each in OBJECTS if not _is_first(each)}

    assert first == {"ConfigMap", "NetworkPolicy", "Job"}
    assert rest == {"Deployment", "Service", "PodDisruptionBudget", "Secret"}


@pytest.mark.parametrize("page", ["deploy.md", "upgrade.md"])
def test_the_commands_wait_for_the_migration(page: str) -> None:
    """What is applied before the wait is chosen by the label, and holds the Job that is waited for."""
    text = (HOW_TO / page).read_text()
    applied = text.index("kubectl apply --kustomize deploy/kubernetes --selector haulage/apply=first\n")
    waited = re.search(r"kubectl wait --namespace (\S+) --for=condition=complete --timeout=10m job/(\S+)\n", text)
    (job,) = [each for each in OBJECTS if each["kind"] == "Job"]

    assert waited
    assert applied < waited.start()
    assert waited.groups() == ("haulage", job["metadata"]["name"])


def _is_first(manifest: Tree) -> bool:
    return bool(manifest["metadata"].get("labels", {}).get("haulage/apply") == "first")
