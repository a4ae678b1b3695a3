"""What deploy/ describes, in one form: every container of the compose file and of the Kubernetes manifests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from domain import VERSION

FOLDER = Path(__file__).parents[2] / "deploy"
OUR_IMAGE = f"haulage:{VERSION}"

Tree = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """One container, of any workload."""

    name: str
    image: str
    command: list[str]
    environment: dict[str, str]
    user: str
    read_only: bool
    drops_all: bool
    no_new_privileges: bool
    stop_seconds: float

    @property
    def ours(self) -> bool:
        """Whether it runs our image."""
        return self.image == OUR_IMAGE


@cache
def compose() -> Tree:
    """The compose file, its anchors resolved."""
    tree: Tree = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return tree


@cache
def manifests() -> list[Tree]:
    """Every Kubernetes object: what kustomize applies, and the example of the secrets."""
    folder = FOLDER / "kubernetes"
    applied = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [
        document
        for name in (*applied, "secret.example.yaml")
        for document in yaml.safe_load_all((folder / name).read_text())
    ]


@cache
def containers() -> tuple[Container, ...]:
    """Every container of both."""
    objects = manifests()
    pods = [each for each in objects if each["kind"] in {"Deployment", "Job"}]
    return (
        *(_of_service(name, service) for name, service in compose()["services"].items()),
        *(_of_pod(each, objects) for each in pods),
    )


def _of_service(name: str, service: Tree) -> Container:
    return Container(
        name=f"compose/{name}",
        image=service["image"],
        command=service.get("command", []),
        environment={key: str(value) for key, value in service.get("environment", {}).items()},
        user=service["user"],
        read_only=service.get("read_only", False),
        drops_all=service.get("cap_drop") == ["ALL"],
        no_new_privileges="no-new-privileges:true" in service.get("security_opt", []),
        stop_seconds=float(service.get("stop_grace_period", "10s").removesuffix("s")),
    )


def _of_pod(manifest: Tree, objects: list[Tree]) -> Container:
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    locked = container["securityContext"]
    return Container(
        name=f"kubernetes/{manifest['metadata']['name']}",
        image=container["image"],
        command=container["args"],
        environment=_environment(container, objects),
        user=f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}",
        read_only=locked["readOnlyRootFilesystem"],
        drops_all=locked["capabilities"] == {"drop": ["ALL"]},
        no_new_privileges=locked["allowPrivilegeEscalation"] is False,
        stop_seconds=float(pod.get("terminationGracePeriodSeconds", 30)),
    )


def _environment(container: Tree, objects: list[Tree]) -> dict[str, str]:
    """What the pod sees: referenced maps first, its own variables on top."""
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        (kind, reference), *_ = source.items()
        wanted = ("ConfigMap" if kind == "configMapRef" else "Secret", reference["name"])
        (held,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == wanted]
        found |= held.get("data", {}) | held.get("stringData", {})
    return found | {each["name"]: each["value"] for each in container.get("env", [])}
