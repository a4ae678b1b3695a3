"""What deploy/ ships is valid by the published schemas of Kubernetes and of Compose."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.support import deploy_files
from tests.support.requirements import GO

VERSIONS = ("1.29.0", "1.35.0", "1.37.0")
"""Those that docs/how-to/deploy.md names; the package knows no newer one."""
COMPOSE_SCHEMA = "github.com/compose-spec/compose-go/v2@v2.16.2"
COMPOSE_SUM = "h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8="
DOWNLOAD_SECONDS = 60


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", deploy_files.manifests(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}"
)
def test_kubernetes_takes_every_manifest(manifest: dict[str, Any], version: str) -> None:
    """No field is misspelt or has another type."""
    kubernetes_validate.validate(manifest, version, strict=True)


def test_kubernetes_refuses_a_misspelt_field() -> None:
    """A field that no version has is found deep in a manifest."""
    manifest = copy.deepcopy(next(each for each in deploy_files.manifests() if each["kind"] == "Deployment"))
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    container["readynessProbe"] = container.pop("readinessProbe")
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.fixture(scope="module")
def find_compose_faults(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that lists what the schema of Compose finds wrong in a file."""
    validator = jsonschema.Draft202012Validator(_load_compose_schema(tmp_path_factory.mktemp("compose-schema")))

    def find(tree: dict[str, Any]) -> list[str]:
        return [f"{each.json_path}: {each.message}" for each in validator.iter_errors(tree)]

    return find


def test_compose_takes_the_file(find_compose_faults: Any) -> None:
    """Its anchors resolved, as Compose reads it."""
    assert find_compose_faults(deploy_files.compose()) == []


def test_compose_refuses_a_misspelt_field(find_compose_faults: Any) -> None:
    """A field of a service that Compose does not know is found."""
    tree = copy.deepcopy(deploy_files.compose())
    tree["services"]["api"]["read_olny"] = True
    [fault] = find_compose_faults(tree)
    assert fault.startswith("$.services.api: ")
    assert "read_olny" in fault


def _load_compose_schema(folder: Path) -> dict[str, Any]:
    # It is published as part of Compose's own loader; Go checks the sum of what it fetches.
    command = [GO.require(), "mod", "download", "-json", COMPOSE_SCHEMA]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS)
    module = json.loads(done.stdout)
    if error := module.get("Error"):
        GO.miss(f"the schema of Compose cannot be had: {error}")
    assert module["Sum"] == COMPOSE_SUM
    schema: dict[str, Any] = json.loads((Path(module["Dir"]) / "schema" / "compose-spec.json").read_text())
    return schema
