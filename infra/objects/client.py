"""The S3 client library, its threads and connections, and everything that uses its private methods.

The library is synchronous, and its public methods neither take a digest nor put single parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.datatypes import Object, Part
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.helpers import DictType
from urllib3 import BaseHTTPResponse

from domain.faults import Invalid
from infra import metrics, tls
from infra.component_settings import ObjectSettings
from infra.objects.failures import ObjectMissing, StoreFailure, build_bucket_missing_failure, raise_as_store_failures
from infra.objects.records import EPOCH, PART_TYPE, ListedObject, ObjectMetadata, OpenUpload

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0

_CALL_NAMES = {"<lambda>": "list_objects", "read": "read_piece"}
"""Names in metrics of calls whose functions have none that says what they do."""

P = ParamSpec("P")
T = TypeVar("T")

_META = "x-amz-meta-"
_DIGEST = "x-amz-content-sha256"


class MinioThreadClient:
    """Run calls of the synchronous client library on threads, each with its own connection to the store."""

    def __init__(self, settings: ObjectSettings) -> None:
        self.bucket = settings.bucket
        self.region = settings.region
        self._prefix = f"{settings.prefix.strip('/')}/" if settings.prefix.strip("/") else ""
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="objects")
        self._pool = _create_connection_pool(settings)
        self.minio = self._create_client(settings, settings.endpoint, secure=settings.secure)
        public = urlsplit(settings.public_base)
        # The signature covers the host: links are signed for the one that browsers use.
        self.public = (
            self._create_client(settings, public.netloc, secure=public.scheme == "https")
            if public.netloc
            else self.minio
        )

    def to_path(self, key: str) -> str:
        """Return the path of a key in the bucket."""
        return self._prefix + key

    def to_key(self, path: str) -> str:
        """Return the key of a path in the bucket."""
        return path.removeprefix(self._prefix)

    async def call_on_thread(self, key: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function on a thread, and raise a StoreFailure if it fails.

        A cancelled call waits for its thread: a put must not arrive after the clean-up that follows it.
        """

        def run_and_translate_errors() -> T:
            with raise_as_store_failures(key):
                return work(*args, **kwargs)

        began, ending = time.perf_counter(), "done"
        job = self._threads.submit(run_and_translate_errors)
        outcome = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            ending = "cancelled"
            if not job.cancel():
                await asyncio.wait([outcome])
                outcome.exception()
            raise
        except ObjectMissing:
            ending = "missing"
            raise
        except Exception:
            ending = "failed"
            raise
        finally:
            name = _CALL_NAMES.get(work.__name__, work.__name__)
            metrics.STORE_SECONDS.labels(name, ending).observe(time.perf_counter() - began)

    async def close(self) -> None:
        """Wait for the threads, and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._pool.clear()

    def _create_client(self, settings: ObjectSettings, endpoint: str, *, secure: bool) -> Minio:
        try:
            return MinioWithCallerDigests(
                endpoint,
                access_key=settings.access_key,
                secret_key=settings.secret_key.get_secret_value(),
                secure=secure,
                # Without a region the library asks the store for it before it signs.
                region=settings.region,
                http_client=self._pool,
            )
        except ValueError as error:
            raise Invalid("settings_invalid", f"{error}.", "Correct HAULAGE_OBJECTS__… in the environment.") from None


def _create_connection_pool(settings: ObjectSettings) -> urllib3.PoolManager:
    return urllib3.PoolManager(
        maxsize=settings.threads,
        ssl_context=tls.build_client_tls_context(settings.tls, tls.STORE) if settings.secure else None,
        timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
        retries=urllib3.Retry(
            total=3,
            backoff_factor=0.2,
            backoff_jitter=0.2,
            status_forcelist=[500, 502, 503, 504],
            # The store's own error says more than "too many retries".
            raise_on_status=False,
        ),
    )


class MinioWithCallerDigests(Minio):
    """The client library with digests that the caller has computed: it would compute another one, over TLS an MD5."""

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


def ensure_bucket(minio: Minio, bucket: str, region: str) -> None:
    """Create the bucket unless it exists or another caller is creating it."""
    if minio.bucket_exists(bucket):
        return
    try:
        minio.make_bucket(bucket, region)
    except S3Error as error:
        if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            raise


def require_bucket(minio: Minio, bucket: str) -> None:
    """Raise BucketMissing unless the bucket exists."""
    if not minio.bucket_exists(bucket):
        raise build_bucket_missing_failure(bucket)


def build_object_headers(content_type: str, metadata: Mapping[str, str]) -> DictType:
    """Return the headers that an object is stored with."""
    for name, value in metadata.items():
        if not (name.isascii() and value.isascii()):
            raise ValueError(f"Metadata {name!r}: {value!r} is not ASCII, and headers carry nothing else. Encode it.")
    return {"Content-Type": content_type, **{f"{_META}{name}": value for name, value in metadata.items()}}


class EtagAndSha256(NamedTuple):
    """What identifies the bytes that were sent."""

    etag: str
    sha256: str


def put_object(minio: Minio, bucket: str, path: str, data: bytes, headers: DictType) -> EtagAndSha256:
    """Store an object; return its ETag, and the SHA-256 of what was sent."""
    digest = hashlib.sha256(data).hexdigest()
    written = minio._put_object(bucket, path, data, {**headers, _DIGEST: digest})
    return EtagAndSha256(written.etag or "", digest)


def put_part(minio: Minio, bucket: str, path: str, upload_id: str, number: int, data: bytes) -> EtagAndSha256:
    """Send a part; return its ETag, and the SHA-256 of what was sent."""
    digest = hashlib.sha256(data).hexdigest()
    headers: DictType = {"Content-Type": PART_TYPE, _DIGEST: digest}
    return EtagAndSha256(minio._upload_part(bucket, path, data, headers, upload_id, number), digest)


def begin_upload(minio: Minio, bucket: str, path: str, headers: DictType) -> str:
    """Begin an upload in parts; return its id."""
    return minio._create_multipart_upload(bucket, path, headers)


def complete_upload(minio: Minio, bucket: str, path: str, upload_id: str, parts: list[Part]) -> str | None:
    """Make the object appear from these parts; return its ETag, or None where the store reports a failure with 200."""
    return minio._complete_multipart_upload(bucket, path, upload_id, parts).etag


def abort_upload(minio: Minio, bucket: str, path: str, upload_id: str) -> None:
    """Remove an open upload and its parts."""
    minio._abort_multipart_upload(bucket, path, upload_id)


def to_object_head(key: str, found: Object) -> ObjectMetadata:
    """Convert the library's answer to HEAD."""
    answered = {name.lower(): value for name, value in (found.metadata or {}).items()}
    return ObjectMetadata(
        key=key,
        size=found.size or 0,
        etag=found.etag or "",
        content_type=found.content_type or "",
        metadata={name.removeprefix(_META): value for name, value in answered.items() if name.startswith(_META)},
        modified=found.last_modified or EPOCH,
        disposition=answered.get("content-disposition"),
    )


def to_listed_object(key: str, found: Object) -> ListedObject:
    """Convert an entry of the library's listing."""
    return ListedObject(key, found.size or 0, found.last_modified or EPOCH)


def read_object(minio: Minio, bucket: str, path: str) -> bytes:
    """Return a whole object."""
    response = minio.get_object(bucket, path)
    try:
        return response.read()
    finally:
        release_connection(response)


def release_connection(response: BaseHTTPResponse) -> None:
    """Return the connection to the pool; close it if its body was not read to the end."""
    response.close()
    response.release_conn()


def delete_objects(minio: Minio, bucket: str, objects: Sequence[Object]) -> None:
    """Remove up to 1,000 objects; raise StoreFailure for the first that could not be removed."""
    doomed = [DeleteObject(found.object_name or "") for found in objects]
    for failed in minio.remove_objects(bucket, doomed):
        raise StoreFailure(
            f"{failed.name!r} could not be deleted: {failed.code} {failed.message}",
            key=failed.name or "",
            code=failed.code or "",
        )


def list_open_uploads(minio: Minio, bucket: str, prefix: str) -> list[OpenUpload]:
    """Return the uploads under a prefix that are neither completed nor aborted, by their full paths."""
    found: list[OpenUpload] = []
    key_marker: str | None = None
    id_marker: str | None = None
    while True:
        page = minio._list_multipart_uploads(bucket, prefix=prefix, key_marker=key_marker, upload_id_marker=id_marker)
        found += [OpenUpload(one.object_name, one.upload_id or "", one.initiated_time or EPOCH) for one in page.uploads]
        if not page.is_truncated:
            return found
        key_marker = page.next_key_marker
        # minio 7.2.20 misspells its own field; SeaweedFS pages by this marker alone.
        id_marker = vars(page)["self._next_upload_id_marker"]
