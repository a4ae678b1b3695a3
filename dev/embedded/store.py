"""The embedded object store: SeaweedFS in one process, speaking S3."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import urllib3
from minio import Minio
from minio.error import MinioException

from dev.embedded import binaries, flags
from dev.embedded.keys import ACCESS_KEY
from dev.embedded.part import NotReady, Part
from dev.embedded.ports import LOOPBACK, Ports

NAME = "store"
BUCKET = "haulage"
REGION = "us-east-1"
STOP_SECONDS = 3.0
PROBE_KEY = ".ready"
PROBE_TIMEOUT_SECONDS = 2.0
# Every listener of `weed mini` that cannot be switched off; unnamed, each takes a well-known port.
INNER_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
    "admin.port.grpc",
)
# The maintenance worker dials the admin server at the port of its pages plus this, whatever `admin.port.grpc` says.
ADMIN_OFFSET = 10_000


def part(folder: Path, port: int, ports: Ports, secret_key: str, *, for_tests: bool) -> Part:
    """SeaweedFS with S3 on a port, its data below a folder."""
    inner = {name: ports.claim(f"{NAME}.{name}") for name in INNER_PORTS}
    admin = ports.claim(f"{NAME}.admin.port", inner["admin.port.grpc"] - ADMIN_OFFSET)
    numbers = {"s3.port": port, "admin.port": admin, **inner}

    async def ready() -> None:
        await asyncio.to_thread(_probe, port, secret_key)

    async def clean() -> None:
        await asyncio.to_thread(_remove_sockets, list(numbers.values()))

    return Part(
        name=NAME,
        argv=[
            str(binaries.weed()),
            "mini",
            f"-dir={folder}",
            f"-bucket={BUCKET}",
            *(f"-{name}={value}" for name, value in {**flags.store_alone(), **numbers}.items()),
        ],
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            **flags.go_variables(for_tests=for_tests),
        },
        folder=folder,
        prepare=clean,
        ready=ready,
        clean=clean,
        # It now and then hangs on its way out, with all data on the disk: it survives `kill -9` at any moment.
        stop_timeout_seconds=STOP_SECONDS,
    )


def _probe(port: int, secret_key: str) -> None:
    """Write, read and remove an object: the gateway listens before a volume can be written."""
    http = urllib3.PoolManager(retries=False, timeout=PROBE_TIMEOUT_SECONDS)
    client = Minio(f"{LOOPBACK}:{port}", ACCESS_KEY, secret_key, secure=False, region=REGION, http_client=http)
    try:
        client.put_object(BUCKET, PROBE_KEY, io.BytesIO(b"ready"), 5)
        answer = client.get_object(BUCKET, PROBE_KEY)
        answer.read()
        answer.release_conn()
        client.remove_object(BUCKET, PROBE_KEY)
    except (MinioException, urllib3.exceptions.HTTPError) as error:
        raise NotReady(f"SeaweedFS on port {port} does not answer: {error}") from error
    finally:
        http.clear()


def _remove_sockets(ports: list[int]) -> None:
    """SeaweedFS leaves a local socket behind when it stops, and all of them when it is killed."""
    for number in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):  # noqa: S108
            path.unlink(missing_ok=True)
