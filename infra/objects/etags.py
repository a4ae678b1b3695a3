"""ETags: what S3 says about content, as far as it can be recomputed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

_MD5 = re.compile(r"[0-9a-f]{32}")


def is_md5(etag: str) -> bool:
    """Whether an ETag is the MD5 of the content; parts copied from joined objects and encrypted ones have others."""
    return _MD5.fullmatch(etag) is not None


def composite_etag(part_etags: Sequence[str]) -> str:
    """The ETag that S3 gives an upload completed from these parts: the MD5 of their MD5s, and their count.

    Raises:
        ValueError: An ETag is not an MD5, so the composite cannot be known.
    """
    digest = hashlib.md5(usedforsecurity=False)
    for etag in part_etags:
        if not is_md5(etag):
            raise ValueError(f"{etag!r} is not the MD5 of a part: only parts sent as bytes have one.")
        digest.update(bytes.fromhex(etag))
    return f"{digest.hexdigest()}-{len(part_etags)}"
