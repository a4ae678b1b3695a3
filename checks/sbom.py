"""The software bill of materials: every locked package with its licence, in CycloneDX, and whether all may be used.

`make lock` writes `sbom.cdx.json`. Versions are those of the locks, which also hold the hashes; licences are what the
installed packages say of themselves.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from domain import VERSION

FOLDER: Final = Path(__file__).parents[1]
SBOM: Final = FOLDER / "sbom.cdx.json"
LOCKS: Final = {
    "requirements.lock": "required",
    "requirements-up.lock": "optional",
    "requirements-dev.lock": "excluded",
    "requirements-uv.lock": "excluded",
}
"""Locks with the scope of what they are the first to name: the server, the embedded parts, checks and tests."""
DOCS_LOCKS: Final = {"requirements-docs.lock": "excluded"}
"""Only `make docs` installs it, so that its packages are judged by `make lock` alone and not in the bill."""

PERMITTED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0"),
        *("PSF-2.0", "Unlicense", "Zlib"),
    }
)
PERMITTED_FOR_TESTS: Final = PERMITTED | {"LGPL-3.0-only"}
"""Nothing of these is delivered."""

CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
NOT_STATED: Final = {
    "colorama": "BSD-3-Clause",  # on Windows only, so that it is not installed where this runs
    "kubernetes-validate": "Apache-2.0",  # says "Apache", and brings the text of that version
    "protobuf": "BSD-3-Clause",  # says it in words
}

INACTIVE: Final = "Development Status :: 7 - Inactive"
DORMANT_AFTER: Final = timedelta(days=3 * 365)
"""A package without a release for so long is taken for abandoned: hardly any says so of itself."""
FINISHED: Final = {
    "colorama": "It writes escape codes for old Windows terminals, which do not change.",
    "mdurl": "It parses URLs in Markdown as a finished specification says.",
    "rfc3339-validator": "It is one regular expression, and in tests only.",
    "shellingham": "It finds the shell of a terminal, from the names of processes.",
    "sortedcontainers": "It is pure Python without dependencies, complete since 2019, and not in the server.",
}
"""Packages that may be dormant, with the reason: each was looked at."""

_PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
_OPERATORS = re.compile(r"\s+(?:AND|OR)\s+|[()]")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package of a lock."""

    name: str
    version: str
    scope: str
    licence: str
    """An SPDX expression."""

    @property
    def is_permitted(self) -> bool:
        """Whether its licence allows what we do with it; of a choice, one permitted licence is enough."""
        permitted = PERMITTED_FOR_TESTS if self.scope == "excluded" else PERMITTED
        choices = [_OPERATORS.split(choice) for choice in re.split(r"\s+OR\s+", self.licence)]
        return any(all(part in permitted for part in choice if part) for choice in choices)


def read_packages(locks: Mapping[str, str] = LOCKS) -> list[LockedPackage]:
    """Return the packages of locks, each with the first scope that names it."""
    scopes: dict[tuple[str, str], str] = {}
    for lock, scope in locks.items():
        for name, version in read_lock((FOLDER / lock).read_text()):
            scopes.setdefault((name, version), scope)
    return [
        LockedPackage(name, version, scope, find_licence(name)) for (name, version), scope in sorted(scopes.items())
    ]


def read_lock(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package of a lock."""
    for line in text.splitlines():
        if match := _PINNED.match(line):
            yield match[1], match[2]


def find_licence(name: str) -> str:
    """Return the licence of a package as an SPDX expression.

    Raises:
        LookupError: The package does not state one that is known here.
    """
    if name in NOT_STATED:
        return NOT_STATED[name]
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        raise LookupError(f"{name} is not installed: add its licence to NOT_STATED") from None
    for field in ("License-Expression", "License"):
        # The older field may hold a name, a sentence or a whole licence.
        text = "".join(about.get_all(field, []))
        if text and set(_OPERATORS.split(text)) - {""} <= PERMITTED_FOR_TESTS:
            return text
    stated = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", [])]
    known = [CLASSIFIERS[each] for each in stated if each in CLASSIFIERS]
    if not known:
        raise LookupError(f"{name} states no licence that is known: look it up, and add it to NOT_STATED")
    return " AND ".join(known)


def build_sbom(packages: list[LockedPackage]) -> str:
    """Build the document; the same packages make the same text."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package.name}@{package.version}",
            "name": package.name,
            "version": package.version,
            "scope": package.scope,
            "licenses": [_build_licence(package.licence)],
            "purl": f"pkg:pypi/{package.name}@{package.version}",
        }
        for package in packages
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "haulage",
                "name": "haulage",
                "version": VERSION,
                "licenses": [_build_licence("MIT")],
            }
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def _build_licence(expression: str) -> dict[str, Any]:
    return {"expression": expression} if " " in expression else {"license": {"id": expression}}


def _list_requirements(lock: str) -> list[str]:
    return [line.rstrip(" \\") for line in lock.splitlines() if _PINNED.match(line)]


def find_yanked(lock: str) -> list[str]:
    """Return what the resolver says of those packages of a lock that were withdrawn from their registry."""
    pinned = "\n".join(_list_requirements(lock))
    command: list[Path | str] = [Path(sys.executable).with_name("uv")]
    command += ["pip", "compile", "--no-deps", "--universal", "--no-header", "-"]
    done = subprocess.run(command, input=pinned, capture_output=True, text=True, check=True)
    return [line for line in done.stderr.splitlines() if "yanked" in line]


def find_abandoned(names: Iterable[str]) -> list[str]:
    """Return the packages that call themselves abandoned. A package that is not installed here says nothing."""
    installed = {re.sub(r"[-_.]+", "-", each.name).lower(): each.metadata for each in metadata.distributions()}
    return [name for name in names if name in installed and INACTIVE in (installed[name].get_all("Classifier") or [])]


def find_dormant(lock: str, now: datetime) -> list[str]:
    """Return the packages of a lock without a release for `DORMANT_AFTER`, as the registry dates them."""
    dependencies = _list_requirements(lock)
    project = f'[project]\nname = "locked"\nversion = "0"\nrequires-python = ">=3.11"\n{dependencies = }\n'
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text(project)
        subprocess.run(
            [Path(sys.executable).with_name("uv"), "lock", "--project", folder], check=True, capture_output=True
        )
        return list_dormant((Path(folder) / "uv.lock").read_text(), now)


def list_dormant(uv_lock: str, now: datetime) -> list[str]:
    """Return the packages of an `uv.lock` whose last file is too old, but for those in `FINISHED`."""
    dormant = []
    for package in tomllib.loads(uv_lock)["package"]:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        dates = [datetime.fromisoformat(each["upload-time"]) for each in files if "upload-time" in each]
        if dates and max(dates) < now - DORMANT_AFTER and package["name"] not in FINISHED:
            dormant.append(f"{package['name']} {package['version']} of {max(dates):%Y-%m-%d}")
    return dormant


def main() -> int:
    """Write the document; return 1 if a licence is not permitted, or a package is withdrawn, abandoned or dormant."""
    packages = read_packages()
    SBOM.write_text(build_sbom(packages))
    judged = [*packages, *read_packages(DOCS_LOCKS)]
    refused = [f"{each.name} {each.version}: {each.licence}" for each in judged if not each.is_permitted]
    found = [f"The licence is not permitted: {each}" for each in refused]
    found += [f"It is abandoned: {name}" for name in find_abandoned(each.name for each in judged)]
    for lock in ("requirements-dev.lock", *DOCS_LOCKS, "requirements-uv.lock"):
        found += find_yanked((FOLDER / lock).read_text())
        dormant = find_dormant((FOLDER / lock).read_text(), datetime.now(UTC))
        found += [
            f"It has no release for three years; replace it, or say in FINISHED why not: {each}" for each in dormant
        ]
    for line in found:
        print(line)
    print(f"{SBOM.name}: {len(packages)} packages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
