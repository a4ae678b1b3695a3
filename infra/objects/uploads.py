"""Uploads in parts as S3 speaks of them, synchronous: paging, repeated answers, and what SeaweedFS lists twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from minio import Minio
from minio.datatypes import Part as WirePart

from infra import log
from infra.objects.records import EPOCH, Part, Upload

_log = log.get(__name__)


def parts(minio: Minio, bucket: str, path: str, upload_id: str) -> list[Part]:
    """What the store holds for an upload, by number."""
    listed: list[WirePart] = []
    marker = 0
    while True:
        page = minio._list_parts(bucket, path, upload_id, part_number_marker=str(marker))
        listed += page.parts
        if not page.is_truncated:
            return latest(listed)
        # One back: a page may end between two listings of one number, and the marker would skip the second.
        last = page.parts[-1].part_number
        marker = last - 1 if last - 1 > marker else last


def latest(listed: Sequence[WirePart]) -> list[Part]:
    """One part a number, the one sent last.

    SeaweedFS lists a part that was sent twice twice, in no order and with times to the second. When the contents
    differ and the times do not, nobody can say which is the later: the part is left out, so that it is sent again.
    """
    candidates: dict[int, set[tuple[datetime, str, int]]] = {}
    for part in listed:
        version = (part.last_modified or EPOCH, part.etag, part.size or 0)
        candidates.setdefault(part.part_number, set()).add(version)
    found = []
    for number, versions in sorted(candidates.items()):
        newest = max(modified for modified, _, _ in versions)
        contents = {(etag, size) for modified, etag, size in versions if modified == newest}
        if len(contents) > 1:
            _log.warning("ambiguous_part_left_out", number=number, etags=sorted(etag for etag, _ in contents))
            continue
        [(etag, size)] = contents
        found.append(Part(number, size, etag))
    return found


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
