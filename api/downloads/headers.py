"""Headers for the source: which a caller may have us send, and the sentence about each that it may not."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

HEADERS_MAX_CHARACTERS = 16_000

_HEADER_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]{0,4000}")
# What HTTP itself uses between two hops, or what we decide: who sets them could smuggle or break requests.
_OUR_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"“{name[:60]}” is no name of a header; use 1–100 letters, digits and hyphens.")
        if name.lower() in _OUR_HEADERS:
            raise ValueError(f"{name} cannot be set: HTTP or we ourselves decide it. Remove it.")
        if not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(
                f"the value of {name} is not 0–4000 printable ASCII characters without spaces around; correct it."
            )
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("a name comes twice, in different cases; send it once.")
    length = sum(len(name) + len(value) for name, value in headers.items())
    if length > HEADERS_MAX_CHARACTERS:
        raise ValueError(f"they have {length:,} characters in all; send {HEADERS_MAX_CHARACTERS:,} or less.")
    return headers


Headers = Annotated[dict[str, Annotated[str, Field(max_length=4_000)]], Field(max_length=50), AfterValidator(_sendable)]
