"""What is sent to the store is signed, digest and all, whatever the connection."""

from __future__ import annotations

import hashlib

import pytest
from minio.credentials.providers import StaticProvider

from infra.objects.client import MinioWithCallerDigests

DATA = b"some bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("secure", [True, False])
def test_a_digest_is_made_once(secure: bool) -> None:
    """The digest of the caller is signed; over TLS there is no MD5 beside it."""
    client = MinioWithCallerDigests("store.example", secure=secure)
    credentials = StaticProvider("key", "secret").retrieve()

    headers, _ = client._build_headers("store.example", {"x-amz-content-sha256": DIGEST}, DATA, credentials)

    assert (headers["x-amz-content-sha256"], headers["Content-Length"]) == (DIGEST, "10")
    assert "Content-MD5" not in headers


def test_without_a_digest_the_library_makes_its_own() -> None:
    """Requests that we do not digest are signed as ever."""
    headers, _ = MinioWithCallerDigests("store.example", secure=False)._build_headers(
        "store.example", {}, DATA, StaticProvider("key", "secret").retrieve()
    )

    assert headers["x-amz-content-sha256"] == DIGEST
