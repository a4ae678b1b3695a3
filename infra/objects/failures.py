"""Failures of the object store: a few types, translated from the many of the client library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minio.error import MinioException, S3Error
from urllib3.exceptions import HTTPError

from domain.faults import ComponentUnreachable, ExplainedFailure
from infra import tls

_REFUSALS = {
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
}
_OUTAGES = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}


class StoreFailure(ExplainedFailure):
    """The object store did not do what was asked.

    Args:
        message: What was asked, what came back, and what to do next.
        key: The key of the object; empty if the call was about none.
        code: The S3 error code; empty if there was no answer.
    """

    def __init__(self, message: str, *, key: str, code: str) -> None:
        super().__init__(message)
        self.key = key
        self.code = code


class ObjectMissing(StoreFailure):
    """There is no object under this key."""


class UploadMissing(StoreFailure):
    """The upload was completed or aborted, or never begun."""


class BucketMissing(StoreFailure):
    """The configured bucket does not exist."""


class PartTooSmall(StoreFailure):
    """Only the last part of an object may be smaller than 5 MiB."""


class StoreRefused(StoreFailure):
    """The store does not accept the configured keys, or they do not allow this call."""


class StoreUnreachable(StoreFailure, ComponentUnreachable):
    """The store gave no valid answer, or answered that it cannot serve at present."""


@contextmanager
def raise_as_store_failures(key: str) -> Iterator[None]:
    """Translate errors of the client library. Its own S3Error is frozen, so that even `add_note` fails on it."""
    try:
        yield
    except S3Error as error:
        raise build_s3_failure(error, key) from error
    except (HTTPError, MinioException, OSError) as error:
        sentence = tls.explain_tls_error(error, tls.STORE) or (
            f"The object store gave no usable answer for {key!r}: {error}. "
            "Check that it runs, HAULAGE_OBJECTS__ENDPOINT and HAULAGE_OBJECTS__SECURE, and, where it wants our "
            f"certificate, {tls.STORE.cert_file}."
        )
        raise StoreUnreachable(sentence, key=key, code="") from error


def build_s3_failure(error: S3Error, key: str) -> StoreFailure:
    """Return the failure for an S3 error code."""
    code = error.code or ""
    if code == "NoSuchBucket":
        return build_bucket_missing_failure(error.bucket_name or "")
    kind, message = _choose_failure(code, error, key)
    return kind(message, key=key, code=code)


def build_bucket_missing_failure(bucket: str) -> BucketMissing:
    """Return the failure for a missing bucket, which a HEAD without a body cannot report."""
    return BucketMissing(
        f"The bucket {bucket!r} does not exist. Create it, or set HAULAGE_OBJECTS__BUCKET.", key="", code="NoSuchBucket"
    )


def _choose_failure(code: str, error: S3Error, key: str) -> tuple[type[StoreFailure], str]:
    match code:
        case "NoSuchKey":
            return ObjectMissing, f"There is no object {key!r} in the store."
        case "NoSuchUpload":
            return UploadMissing, f"The upload to {key!r} is not open: it was completed or aborted. Begin a new one."
        case "EntityTooSmall":
            return PartTooSmall, (
                f"A part of {key!r} is smaller than 5 MiB: only the last part may be. Send larger parts."
            )
        case _ if code in _REFUSALS:
            return StoreRefused, (
                f"The object store refused access to {key!r} ({code}). Check HAULAGE_OBJECTS__ACCESS_KEY, "
                "HAULAGE_OBJECTS__SECRET_KEY, what they allow, and the clock of this machine."
            )
        case _ if code in _OUTAGES:
            return StoreUnreachable, (
                f"The object store cannot serve {key!r} at present ({code}): {error.message}. Try again in a moment."
            )
        case _:
            return StoreFailure, f"The object store answered {code} for {key!r}: {error.message}"
