"""The object store: one asynchronous interface over any S3. Nothing outside this package knows the client library."""

from infra.objects.failures import (
    BucketMissing,
    ObjectMissing,
    PartTooSmall,
    StoreFailure,
    StoreRefused,
    StoreUnreachable,
    UploadMissing,
)
from infra.objects.records import (
    MIN_PART_BYTES,
    PART_BYTES,
    PART_TYPE,
    JoinedObject,
    ListedObject,
    ObjectMetadata,
    OpenUpload,
    StoredObject,
    UploadPart,
    build_content_disposition,
    compute_composite_etag,
)
from infra.objects.store import ObjectStore

__all__ = [
    "MIN_PART_BYTES",
    "PART_BYTES",
    "PART_TYPE",
    "BucketMissing",
    "JoinedObject",
    "ListedObject",
    "ObjectMetadata",
    "ObjectMissing",
    "ObjectStore",
    "OpenUpload",
    "PartTooSmall",
    "StoreFailure",
    "StoreRefused",
    "StoreUnreachable",
    "StoredObject",
    "UploadMissing",
    "UploadPart",
    "build_content_disposition",
    "compute_composite_etag",
]
