"""The object store: one small asynchronous port over any S3; nothing outside this folder knows the client library."""

from infra.objects.etags import composite_etag
from infra.objects.failures import (
    BucketMissing,
    ObjectMissing,
    PartTooSmall,
    StoreFailure,
    StoreRefused,
    StoreUnreachable,
    UploadMissing,
)
from infra.objects.names import content_disposition
from infra.objects.records import MIN_PART_BYTES, PART_BYTES, PART_TYPE, Head, Joined, Listed, Part, Stored, Upload
from infra.objects.store import ObjectStore

__all__ = [
    "MIN_PART_BYTES",
    "PART_BYTES",
    "PART_TYPE",
    "BucketMissing",
    "Head",
    "Joined",
    "Listed",
    "ObjectMissing",
    "ObjectStore",
    "Part",
    "PartTooSmall",
    "StoreFailure",
    "StoreRefused",
    "StoreUnreachable",
    "Stored",
    "Upload",
    "UploadMissing",
    "composite_etag",
    "content_disposition",
]
