"""The embedded engine: the Temporal dev server on a SQLite file."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from dev.embedded import binaries, flags
from dev.embedded.part import NotReady, Part
from dev.embedded.ports import LOOPBACK, Ports

NAME = "engine"
NAMESPACE = "default"
PROBE_TIMEOUT = timedelta(seconds=2)


def part(folder: Path, port: int, ports: Ports, *, ui_port: int | None, for_tests: bool) -> Part:
    """The dev server on a port, with the Web UI when it has one, its state in a file below a folder."""

    async def ready() -> None:
        await _probe(port)

    surface = ["--headless"] if ui_port is None else ["--ui-ip", LOOPBACK, "--ui-port", str(ui_port)]
    return Part(
        name=NAME,
        argv=[
            str(binaries.temporal()),
            "server",
            "start-dev",
            *("--ip", LOOPBACK, "--port", str(port)),
            *("--http-port", str(ports.claim(f"{NAME}.http"))),
            *("--metrics-port", str(ports.claim(f"{NAME}.metrics"))),
            *("--db-filename", str(folder / "temporal.sqlite")),
            *surface,
            *flags.engine(ui=ui_port is not None, for_tests=for_tests),
        ],
        # A home of its own: the CLI would read profiles and keys from the user's.
        env={"PATH": os.defpath, "HOME": str(folder), **flags.go_variables(for_tests=for_tests)},
        folder=folder,
        ready=ready,
    )


async def _probe(port: int) -> None:
    try:
        client = await Client.connect(f"{LOOPBACK}:{port}", namespace=NAMESPACE)
        request = DescribeNamespaceRequest(namespace=NAMESPACE)
        await client.workflow_service.describe_namespace(request, timeout=PROBE_TIMEOUT)
    except (RPCError, RuntimeError) as error:
        raise NotReady(f"Temporal on port {port} does not answer: {error}") from error
