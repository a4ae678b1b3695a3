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
    PART_BYTES,
    PART_TYPE,
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
    "PART_BYTES",
    "PART_TYPE",
    "BucketMissing",
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
