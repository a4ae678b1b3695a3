"""Open uploads as S3 lists them, synchronous, page by page."""

from __future__ import annotations

from minio import Minio

from infra.objects.records import EPOCH, Upload


def open_uploads(minio: Minio, bucket: str, prefix: str) -> list[Upload]:
    """The uploads under a prefix that were begun and not ended, by their full paths."""
    found: list[Upload] = []
    key_marker: str | None = None
    id_marker: str | None = None
    while True:
        page = minio._list_multipart_uploads(bucket, prefix=prefix, key_marker=key_marker, upload_id_marker=id_marker)
        found += [Upload(one.object_name, one.upload_id or "", one.initiated_time or EPOCH) for one in page.uploads]
        if not page.is_truncated:
            return found
        key_marker = page.next_key_marker
        # minio 7.2.20 misspells its own field; SeaweedFS pages by this marker alone.
        id_marker = vars(page)["self._next_upload_id_marker"]
