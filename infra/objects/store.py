"""The port itself: objects, uploads in parts, listings and links. Every key is relative to the configured prefix."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TypeAlias

from minio.datatypes import Object
from minio.datatypes import Part as WirePart

from infra.objects import joining, streaming, uploads, wire
from infra.objects.channel import Channel
from infra.objects.etags import composite_etag
from infra.objects.failures import ObjectMissing, StoreFailure, UploadMissing
from infra.objects.names import content_disposition
from infra.objects.records import MAX_PARTS, Head, Joined, Listed, Part, SentPart, Stored, Upload
from infra.settings import ObjectSettings

OCTETS = "application/octet-stream"
READ_BYTES = 1024 * 1024
DELETE_BATCH = 1_000

_NO_METADATA: Mapping[str, str] = {}

# Inside the class `list` is the method of that name.
Listing: TypeAlias = list[Listed]
Uploads: TypeAlias = list[Upload]


class ObjectStore:
    """An S3 bucket, or the part of one under a prefix."""

    def __init__(self, settings: ObjectSettings) -> None:
        self.settings = settings
        self._channel = Channel(settings)
        self._bucket = settings.bucket
        self._minio = self._channel.minio

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists; two callers at once are both fine."""
        await self._channel.call("", wire.make_bucket, self._minio, self._bucket, self.settings.region)

    async def ping(self) -> None:
        """Ask for an answer.

        Raises:
            BucketMissing: The store answers, but has no such bucket.
        """
        await self._channel.call("", wire.find_bucket, self._minio, self._bucket)

    async def close(self) -> None:
        """Finish what is under way and close the connections."""
        await self._channel.close()

    # --- objects ---

    async def put(
        self, key: str, data: bytes, *, content_type: str = OCTETS, metadata: Mapping[str, str] = _NO_METADATA
    ) -> Stored:
        """Store bytes under a key, replacing what was there."""
        etag, digest = await self._channel.call(
            key, wire.put, self._minio, self._bucket, self._path(key), data, wire.headers(content_type, metadata)
        )
        return Stored(key, len(data), etag, digest)

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        content_type: str = OCTETS,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> Stored:
        """Store what a stream yields, in flat memory. The object appears whole at the end, or not at all."""
        return await streaming.put_stream(self, key, chunks, content_type, metadata)

    async def get(self, key: str) -> bytes:
        """The whole object.

        Raises:
            ObjectMissing: There is none under this key.
        """
        return await self._channel.call(key, wire.read, self._minio, self._bucket, self._path(key))

    async def stream(self, key: str, start: int = 0) -> AsyncGenerator[bytes]:
        """The object from a byte onwards, in pieces of up to 1 MiB; nothing when it ends before that byte.

        Raises:
            ObjectMissing: There is none under this key.
        """
        try:
            response = await self._channel.call(key, self._minio.get_object, self._bucket, self._path(key), start)
        except StoreFailure as failure:
            if failure.code == "InvalidRange":
                return
            raise
        try:
            while piece := await self._channel.call(key, response.read, READ_BYTES):
                yield piece
        finally:
            wire.release(response)

    async def head(self, key: str) -> Head | None:
        """What the store knows about an object, None when there is none."""
        try:
            found = await self._channel.call(key, self._minio.stat_object, self._bucket, self._path(key))
        except ObjectMissing:
            return None
        return wire.head(key, found)

    async def delete(self, key: str) -> None:
        """Remove an object; that there is none is fine."""
        await self._channel.call(key, self._minio.remove_object, self._bucket, self._path(key))

    # --- listings ---

    async def list(self, prefix: str) -> Listing:
        """All objects whose key begins with a prefix, in order of their keys."""
        found = await self._channel.call(prefix, lambda: [*self._objects(prefix)])
        return [wire.listed(self._channel.key(one.object_name or ""), one) for one in found]

    async def delete_prefix(self, prefix: str) -> int:
        """Remove all objects whose key begins with a prefix; says how many there were."""
        if not self._path(prefix):
            raise ValueError("An empty prefix would delete the whole bucket. Name what is to go.")
        objects = self._objects(prefix)
        deleted = 0
        while batch := await self._channel.call(prefix, lambda: [*islice(objects, DELETE_BATCH)]):
            await self._channel.call(prefix, wire.delete, self._minio, self._bucket, batch)
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
        headers = wire.headers(content_type, metadata)
        if disposition is not None:
            headers["Content-Disposition"] = disposition
        return await self._channel.call(
            key, self._minio._create_multipart_upload, self._bucket, self._path(key), headers
        )

    async def put_part(self, key: str, upload_id: str, number: int, data: bytes) -> SentPart:
        """Send one part; parts may come in any order, and again."""
        if not 1 <= number <= MAX_PARTS:
            raise ValueError(f"Part number {number} of {key!r} is outside 1 to {MAX_PARTS}.")
        etag, digest = await self._channel.call(
            key, wire.put_part, self._minio, self._bucket, self._path(key), upload_id, number, data
        )
        return SentPart(number, len(data), etag, digest)

    async def copy_part(self, key: str, upload_id: str, number: int, source: Head) -> Part:
        """Make a part of an object that is in the store, if that is still the one that `source` describes."""
        headers = wire.copy_headers(self._bucket, self._path(source.key), source.etag)
        etag, _ = await self._channel.call(
            source.key, self._minio._upload_part_copy, self._bucket, self._path(key), upload_id, number, headers
        )
        return Part(number, source.size, etag)

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> str:
        """Make the object appear, from these parts in order of their numbers; returns its ETag. May be repeated."""
        if not parts:
            raise ValueError(f"The upload to {key!r} cannot be completed without a part. Put an empty object instead.")
        ordered = [WirePart(part.number, part.etag) for part in sorted(parts, key=lambda part: part.number)]
        try:
            done = await self._channel.call(
                key, self._minio._complete_multipart_upload, self._bucket, self._path(key), upload_id, ordered
            )
        except UploadMissing:
            # The answer to an earlier attempt may have been lost.
            found = await self.head(key)
            if found is None or found.etag != composite_etag([part.etag for part in ordered]):
                raise
            return found.etag
        if done.etag is None:
            # S3 may answer 200 first and report the failure in the body.
            raise StoreFailure(f"The store did not complete the upload to {key!r}. Try again.", key=key, code="")
        return done.etag

    async def abort(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts; that it has ended already is fine."""
        try:
            await self._channel.call(key, self._minio._abort_multipart_upload, self._bucket, self._path(key), upload_id)
        except UploadMissing:
            return

    async def join(
        self,
        key: str,
        sources: Sequence[str],
        *,
        content_type: str = OCTETS,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> Joined:
        """Make one object of others inside the store. The sources stay.

        Raises:
            PartTooSmall: A source other than the last has less than 5 MiB.
            ObjectMissing: A source does not exist.
        """
        return await joining.join(self, key, sources, content_type, metadata)

    async def list_uploads(self, prefix: str) -> Uploads:
        """The uploads under a prefix that were begun and neither completed nor aborted."""
        found = await self._channel.call(prefix, uploads.open_uploads, self._minio, self._bucket, self._path(prefix))
        return [replace(upload, key=self._channel.key(upload.key)) for upload in found]

    # --- links ---

    async def presign(self, key: str, *, expires_seconds: int, file_name: str, content_type: str) -> str:
        """A link that downloads the object under a file name, until it expires. Asks nobody: the object may be missing.

        The link is encoded as it was signed: wrap it in `yarl.URL(link, encoded=True)` where it would be encoded again.
        """
        return self._channel.public.get_presigned_url(
            "GET",
            self._bucket,
            self._path(key),
            expires=timedelta(seconds=expires_seconds),
            response_headers={
                "response-content-disposition": content_disposition(file_name),
                "response-content-type": content_type,
            },
        )

    def _path(self, key: str) -> str:
        return self._channel.path(key)

    def _objects(self, prefix: str) -> Iterator[Object]:
        found: Iterator[Object] = self._minio.list_objects(self._bucket, prefix=self._path(prefix), recursive=True)
        return found
