"""Objects as S3 speaks of them, synchronous: headers, bodies, listings and batch deletion."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from minio import Minio
from minio.credentials.credentials import Credentials
from minio.datatypes import Object
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.helpers import DictType
from urllib3 import BaseHTTPResponse

from infra.objects.failures import StoreFailure, missing_bucket
from infra.objects.records import EPOCH, PART_TYPE, Head, Listed

_META = "x-amz-meta-"
_DIGEST = "x-amz-content-sha256"


class Client(Minio):
    """The client library, which takes the digest of a body from who sends it and signs it on every kind of connection.

    By itself it would make another one, over TLS an MD5.
    """

    def _build_headers(
        self,
        host: str,
        headers: DictType | None = None,
        body: bytes | None = None,
        creds: Credentials | None = None,
    ) -> tuple[DictType, datetime]:
        digest = (headers or {}).get(_DIGEST)
        if digest is None or body is None:
            return super()._build_headers(host, headers, body, creds)
        ready, date = super()._build_headers(host, headers, None, creds)
        ready.pop("Content-MD5", None)
        return {**ready, "Content-Length": str(len(body)), _DIGEST: digest}, date


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


def put(minio: Minio, bucket: str, path: str, data: bytes, with_headers: DictType) -> tuple[str, str]:
    """Store an object; its ETag, and the SHA-256 of what was sent."""
    digest = hashlib.sha256(data).hexdigest()
    written = minio._put_object(bucket, path, data, {**with_headers, _DIGEST: digest})
    return written.etag or "", digest


def put_part(minio: Minio, bucket: str, path: str, upload_id: str, number: int, data: bytes) -> tuple[str, str]:
    """Send a part; its ETag, and the SHA-256 of what was sent."""
    digest = hashlib.sha256(data).hexdigest()
    headers: DictType = {"Content-Type": PART_TYPE, _DIGEST: digest}
    return minio._upload_part(bucket, path, data, headers, upload_id, number), digest


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
