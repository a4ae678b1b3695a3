"""The object store: objects, uploads in parts, listings and links. Every key is relative to the configured prefix."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TypeAlias

from minio.datatypes import Object
from minio.datatypes import Part as MinioPart

from infra.component_settings import ObjectSettings
from infra.objects import client as minio_calls
from infra.objects import multipart
from infra.objects.client import MinioThreadClient
from infra.objects.failures import ObjectMissing, StoreFailure, UploadMissing
from infra.objects.records import (
    MAX_PARTS,
    ListedObject,
    ObjectMetadata,
    OpenUpload,
    SentUploadPart,
    StoredObject,
    UploadPart,
    build_content_disposition,
    compute_composite_etag,
)

OCTETS = "application/octet-stream"
READ_BYTES = 1024 * 1024
DELETE_BATCH = 1_000
WRITE_CHECK_KEY = ".ready"
WRITE_CHECK_SECONDS = 30.0

_NO_METADATA: Mapping[str, str] = {}

# Inside the class `list` is the method of that name.
Listing: TypeAlias = list[ListedObject]
Uploads: TypeAlias = list[OpenUpload]


class ObjectStore:
    """An S3 bucket, or what lies in it under a prefix."""

    def __init__(self, settings: ObjectSettings) -> None:
        self.settings = settings
        self._client = MinioThreadClient(settings)
        self._bucket = settings.bucket
        self._minio = self._client.minio
        self._write_due = 0.0

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists; safe to call from several processes at once."""
        await self._client.call_on_thread(
            "", minio_calls.ensure_bucket, self._minio, self._bucket, self.settings.region
        )

    async def check_health(self) -> None:
        """Check that the store answers and can be written.

        Raises:
            BucketMissing: The store answers, but has no such bucket.
            StoreFailure: It takes no write, as where its disk is full; that is tried once in `WRITE_CHECK_SECONDS`.
        """
        await self._client.call_on_thread("", minio_calls.require_bucket, self._minio, self._bucket)
        now = time.monotonic()
        if now >= self._write_due:
            await self.put(WRITE_CHECK_KEY, b"")
            await self.delete(WRITE_CHECK_KEY)
            self._write_due = now + WRITE_CHECK_SECONDS

    async def close(self) -> None:
        """Wait for running calls, and close the connections."""
        await self._client.close()

    # --- objects ---

    async def put(
        self, key: str, data: bytes, *, content_type: str = OCTETS, metadata: Mapping[str, str] = _NO_METADATA
    ) -> StoredObject:
        """Store bytes under a key, replacing what was there."""
        etag, digest = await self._client.call_on_thread(
            key,
            minio_calls.put_object,
            self._minio,
            self._bucket,
            self._to_path(key),
            data,
            minio_calls.build_object_headers(content_type, metadata),
        )
        return StoredObject(key, len(data), etag, digest)

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        content_type: str = OCTETS,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> StoredObject:
        """Store what a stream yields, in constant memory. The object appears whole at the end, or not at all."""
        return await multipart.put_stream(self, key, chunks, content_type, metadata)

    async def get(self, key: str) -> bytes:
        """Return the whole object.

        Raises:
            ObjectMissing: There is none under this key.
        """
        return await self._client.call_on_thread(
            key, minio_calls.read_object, self._minio, self._bucket, self._to_path(key)
        )

    async def stream(self, key: str, start: int = 0) -> AsyncGenerator[bytes]:
        """Yield the object from a byte onwards, in pieces of up to 1 MiB; nothing if it ends before that byte.

        Raises:
            ObjectMissing: There is none under this key.
        """
        try:
            response = await self._client.call_on_thread(
                key, self._minio.get_object, self._bucket, self._to_path(key), start
            )
        except StoreFailure as failure:
            if failure.code == "InvalidRange":
                return
            raise
        try:
            while piece := await self._client.call_on_thread(key, response.read, READ_BYTES):
                yield piece
        finally:
            minio_calls.release_connection(response)

    async def head(self, key: str) -> ObjectMetadata | None:
        """Return the size, type and metadata of an object, or None if there is none."""
        try:
            found = await self._client.call_on_thread(key, self._minio.stat_object, self._bucket, self._to_path(key))
        except ObjectMissing:
            return None
        return minio_calls.to_object_head(key, found)

    async def delete(self, key: str) -> None:
        """Remove an object if there is one."""
        await self._client.call_on_thread(key, self._minio.remove_object, self._bucket, self._to_path(key))

    # --- listings ---

    async def list(self, prefix: str) -> Listing:
        """All objects whose key begins with a prefix, in order of their keys."""
        found = await self._client.call_on_thread(prefix, lambda: [*self._iterate_objects(prefix)])
        return [minio_calls.to_listed_object(self._client.to_key(one.object_name or ""), one) for one in found]

    async def delete_prefix(self, prefix: str) -> int:
        """Remove all objects whose key begins with a prefix, which may not be empty; return how many there were."""
        if not prefix:
            raise ValueError("An empty prefix would delete all objects of the installation. Name what is to go.")
        objects = self._iterate_objects(prefix)
        deleted = 0
        while batch := await self._client.call_on_thread(prefix, lambda: [*islice(objects, DELETE_BATCH)]):
            await self._client.call_on_thread(prefix, minio_calls.delete_objects, self._minio, self._bucket, batch)
            deleted += len(batch)
        return deleted

    # --- uploads in parts ---

    async def begin_upload(
        self,
        key: str,
        *,
        content_type: str = OCTETS,
        metadata: Mapping[str, str] = _NO_METADATA,
        disposition: str | None = None,
    ) -> str:
        """Begin an upload and return its id. The object appears when the upload is completed."""
        headers = minio_calls.build_object_headers(content_type, metadata)
        if disposition is not None:
            headers["Content-Disposition"] = disposition
        return await self._client.call_on_thread(
            key, minio_calls.begin_upload, self._minio, self._bucket, self._to_path(key), headers
        )

    async def put_part(self, key: str, upload_id: str, number: int, data: bytes) -> SentUploadPart:
        """Send one part; parts may be sent in any order, and again."""
        if not 1 <= number <= MAX_PARTS:
            raise ValueError(f"Part number {number} of {key!r} is outside 1 to {MAX_PARTS}.")
        etag, digest = await self._client.call_on_thread(
            key, minio_calls.put_part, self._minio, self._bucket, self._to_path(key), upload_id, number, data
        )
        return SentUploadPart(number, len(data), etag, digest)

    async def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadPart]) -> str:
        """Make the object appear from these parts, in the order of their numbers; return its ETag. Safe to repeat."""
        if not parts:
            raise ValueError(f"The upload to {key!r} cannot be completed without a part. Put an empty object instead.")
        ordered = [MinioPart(part.number, part.etag) for part in sorted(parts, key=lambda part: part.number)]
        try:
            done = await self._client.call_on_thread(
                key, minio_calls.complete_upload, self._minio, self._bucket, self._to_path(key), upload_id, ordered
            )
        except UploadMissing:
            # The answer to an earlier attempt may have been lost.
            found = await self.head(key)
            if found is None or found.etag != compute_composite_etag([part.etag for part in ordered]):
                raise
            return found.etag
        if done is None:
            # S3 may answer 200 first and report the failure in the body.
            raise StoreFailure(f"The store did not complete the upload to {key!r}. Try again.", key=key, code="")
        return done

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Remove an upload and its parts if it is still open."""
        try:
            await self._client.call_on_thread(
                key, minio_calls.abort_upload, self._minio, self._bucket, self._to_path(key), upload_id
            )
        except UploadMissing:
            return

    async def list_open_uploads(self, prefix: str) -> Uploads:
        """Return the uploads under a prefix that are neither completed nor aborted."""
        found = await self._client.call_on_thread(
            prefix, minio_calls.list_open_uploads, self._minio, self._bucket, self._to_path(prefix)
        )
        return [replace(upload, key=self._client.to_key(upload.key)) for upload in found]

    # --- links ---

    async def presign_download(self, key: str, *, expires_seconds: int, file_name: str, content_type: str) -> str:
        """Return a link that downloads the object under a file name until it expires; the object may be missing.

        The link is encoded as it was signed: wrap it in `yarl.URL(link, encoded=True)` where it would be encoded again.
        """
        return self._client.public.get_presigned_url(
            "GET",
            self._bucket,
            self._to_path(key),
            expires=timedelta(seconds=expires_seconds),
            response_headers={
                "response-content-disposition": build_content_disposition(file_name),
                "response-content-type": content_type,
            },
        )

    def _to_path(self, key: str) -> str:
        return self._client.to_path(key)

    def _iterate_objects(self, prefix: str) -> Iterator[Object]:
        found: Iterator[Object] = self._minio.list_objects(self._bucket, prefix=self._to_path(prefix), recursive=True)
        return found
