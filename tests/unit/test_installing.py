"""Installing: what is run needs no tool of development, every package has hashes, and clients install alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from dev.embedded.run_file import create_data_folder, lock_data_dir
from domain import VERSION

ROOT = Path(__file__).parents[2]
RUN, DEVELOPMENT, UV = "requirements-up.lock", "requirements-dev.lock", "requirements-uv.lock"
DOCS = "requirements-docs.lock"
TOOLS = {"mypy", "playwright", "schemathesis", "pytest", "ruff"}


def read_lock(name: str) -> dict[str, str]:
    """Return each package of a lock file with its version, marker and hashes."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    return {re.split(r"[=\[]", entry)[0]: entry for entry in entries}


def plan(target: str) -> str:
    """Return what `make` would do where nothing is installed."""
    command = ["make", "--dry-run", "VENV=not-there", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", [RUN, DEVELOPMENT, DOCS, UV, "requirements.lock"])
def test_every_package_has_hashes(name: str) -> None:
    """What a registry serves in its place is refused."""
    assert [package for package, entry in read_lock(name).items() if "--hash=sha256:" not in entry] == []


def test_both_sets_have_the_same_versions() -> None:
    """The second is installed over the first, and replaces nothing."""
    run, development = read_lock(RUN), read_lock(DEVELOPMENT)
    versions = {name: entry.partition(" ")[0] for name, entry in run.items()}
    assert versions.items() <= {name: entry.partition(" ")[0] for name, entry in development.items()}.items()
    assert TOOLS & run.keys() == set()
    assert development.keys() >= TOOLS


@pytest.mark.parametrize("target", ["demo", "up"])
def test_what_is_run_installs_no_tools(target: str) -> None:
    """A first look waits for nothing that it does not use."""
    planned = plan(target)
    assert RUN in planned
    assert DEVELOPMENT not in planned


def test_what_is_announced_has_no_count_of_its_own() -> None:
    """A lock has packages for other machines, too; uv says how many it installed."""
    announced = [line for line in plan("docs").splitlines() if "Installing what" in line]
    assert len(announced) == 3
    assert [line for line in announced if "$(" in line.partition(";")[0] or "grep" in line] == []


def test_clean_is_refused_while_an_installation_runs(tmp_path: Path) -> None:
    """It would remove all data of one that runs, or of a demo that runs."""
    folder = create_data_folder(tmp_path / ".haulage" / "demo")
    clean = ["make", "--file", str(ROOT / "Makefile"), "clean"]
    with lock_data_dir(folder):
        refused = subprocess.run(clean, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert folder.exists()
    assert "what runs in .haulage/demo. Stop that first" in refused.stderr
    subprocess.run(clean, cwd=tmp_path, capture_output=True, check=True)
    assert not folder.exists()


def test_only_the_site_of_the_documents_waits_for_its_tools() -> None:
    """They are in none of the other locks, and do not change what is installed before them."""
    assert plan("docs").index(DEVELOPMENT) < plan("docs").index(DOCS)
    assert DOCS not in plan("test") + plan("check")
    docs, development = read_lock(DOCS), read_lock(DEVELOPMENT)
    shared = docs.keys() & development.keys()
    assert {name: docs[name].partition(" ")[0] for name in shared} == {
        name: development[name].partition(" ")[0] for name in shared
    }


@pytest.mark.parametrize("target", ["check", "test", "test-fast", "bench-foundation"])
def test_tools_are_installed_into_the_same_environment(target: str) -> None:
    """With hashes, by uv or by pip."""
    planned = plan(target)
    assert planned.index(RUN) < planned.index(DEVELOPMENT)
    installs = [line for line in planned.splitlines() if "--requirement requirements-dev.lock" in line]
    assert installs
    assert all("--require-hashes" in line for line in installs)


IMPORT_ALL = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ImportError(f"{name} is installed for development only")

sys.meta_path.insert(0, Refuse())
for package in ("cli", "dev", "sims", "demo", "api", "activities", "workflows", "stores", "clients", "infra", "domain"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if "migrations" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
import worker
"""


def test_what_is_run_imports_no_tools() -> None:
    """Neither the server, nor the stand-ins, nor the demo."""
    tools = read_lock(DEVELOPMENT).keys() - read_lock(RUN).keys()
    holders = metadata.packages_distributions().items()
    refused = {module for module, names in holders if tools.issuperset(map(normal, names))}
    code = f"REFUSED = {refused!r}\n{IMPORT_ALL}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def normal(name: str) -> str:
    """Return the name of a package as lock files write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_required(name: str, found: set[str]) -> set[str]:
    """Return the package and all that it needs here."""
    if name not in found:
        found.add(name)
        for requirement in metadata.requires(name) or []:
            needed, _, marker = requirement.partition(";")
            if "extra" not in marker and "sys_platform" not in marker and "python_version" not in marker:
                list_required(normal(re.split(r"[^A-Za-z0-9._-]", needed.strip())[0]), found)
    return found


USE = """
import asyncio, haulage
from haulage import Client

async def main():
    async with Client("http://127.0.0.1:1", "key"):
        pass

asyncio.run(main())
print(haulage.__file__)
"""


def test_the_clients_install_alone(tmp_path: Path) -> None:
    """A wheel that is built from the tree works with the packages that it declares and no other."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: remove .venv/.tools, and make installs it")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"haulage-{VERSION}-")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        [described] = [name for name in archive.namelist() if name.endswith("METADATA")]
        declared = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", archive.read(described).decode(), re.MULTILINE)
    assert {path.name for path in site.iterdir() if not path.name.endswith("dist-info")} == {"haulage"}
    assert set(declared) == {"aiohttp", "pydantic"}
    found: set[str] = set()
    for name in declared:
        list_required(name, found)
    for name in found:
        for file in metadata.files(name) or []:
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (site / top).exists():
                (site / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    environment = {"PATH": os.defpath, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(site / "haulage" / "__init__.py")
