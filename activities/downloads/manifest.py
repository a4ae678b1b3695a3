"""The manifest of a finished file: written last, after which nothing that was staged is needed any more."""

from __future__ import annotations

from domain.downloads import names
from domain.downloads.request import DownloadOrder
from domain.downloads.status import StoredFile
from domain.downloads.steps import Manifest
from infra.objects import ObjectMissing, ObjectStore


async def read_manifest(objects: ObjectStore, order: DownloadOrder) -> Manifest | None:
    """The manifest, if an earlier attempt wrote it; then what is staged goes, if it has not gone."""
    try:
        manifest = Manifest.model_validate_json(await objects.get(names.manifest(order)))
    except ObjectMissing:
        return None
    await objects.delete_prefix(names.staging(order))
    return manifest


async def write_manifest(objects: ObjectStore, order: DownloadOrder, manifest: Manifest) -> StoredFile:
    """Make the file one that is finished."""
    await objects.put(names.manifest(order), manifest.model_dump_json().encode())
    await objects.delete_prefix(names.staging(order))
    return manifest.file
