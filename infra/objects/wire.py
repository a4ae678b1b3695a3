"""Objects as S3 speaks of them, synchronous: headers, bodies, listings and batch deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from minio import Minio
from minio.datatypes import Object
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.helpers import DictType
from urllib3 import BaseHTTPResponse

from infra.objects.failures import StoreFailure, missing_bucket
from infra.objects.records import EPOCH, Head, Listed

_META = "x-amz-meta-"


def make_bucket(minio: Minio, bucket: str, region: str) -> None:
    """Create the bucket unless it exists, or another caller is creating it."""
    if minio.bucket_exists(bucket):
        return
    try:
        minio.make_bucket(bucket, region)
    except S3Error as error:
        if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            raise


def find_bucket(minio: Minio, bucket: str) -> None:
    """Pass if the bucket exists and our keys open it."""
    if not minio.bucket_exists(bucket):
        raise missing_bucket(bucket)


def headers(content_type: str, metadata: Mapping[str, str]) -> DictType:
    """Headers that an object is stored with."""
    for name, value in metadata.items():
        if not (name.isascii() and value.isascii()):
            raise ValueError(f"Metadata {name!r}: {value!r} is not ASCII, and headers carry nothing else. Encode it.")
    return {"Content-Type": content_type, **{f"{_META}{name}": value for name, value in metadata.items()}}


def copy_headers(bucket: str, path: str, etag: str) -> DictType:
    """Headers that name the source of a copy, as it was when it was looked at."""
    return {"x-amz-copy-source": quote(f"/{bucket}/{path}"), "x-amz-copy-source-if-match": f'"{etag}"'}


def head(key: str, found: Object) -> Head:
    """Our record of what the store answered to HEAD."""
    answered = {name.lower(): value for name, value in (found.metadata or {}).items()}
    return Head(
        key=key,
        size=found.size or 0,
        etag=found.etag or "",
        content_type=found.content_type or "",
        metadata={name.removeprefix(_META): value for name, value in answered.items() if name.startswith(_META)},
        modified=found.last_modified or EPOCH,
        disposition=answered.get("content-disposition"),
    )


def listed(key: str, found: Object) -> Listed:
    """Our record of one line of a listing."""
    return Listed(key, found.size or 0, found.last_modified or EPOCH)


def read(minio: Minio, bucket: str, path: str) -> bytes:
    """A whole object."""
    response = minio.get_object(bucket, path)
    try:
        return response.read()
    finally:
        release(response)


def release(response: BaseHTTPResponse) -> None:
    """Give the connection back; one whose body was not read to its end is closed."""
    response.close()
    response.release_conn()


def delete(minio: Minio, bucket: str, objects: Sequence[Object]) -> None:
    """Remove a batch of up to 1,000 objects, or say which one could not be removed."""
    doomed = [DeleteObject(found.object_name or "") for found in objects]
    for failed in minio.remove_objects(bucket, doomed):
        raise StoreFailure(
            f"{failed.name!r} could not be deleted: {failed.code} {failed.message}",
            key=failed.name or "",
            code=failed.code or "",
        )
