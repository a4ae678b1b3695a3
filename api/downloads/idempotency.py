"""Idempotency keys: the same key and the same body are the same download, however often they are sent."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from domain.faults import Invalid
from infra.database import Database
from stores.shared import projects
from stores.shared.projects import IdempotencyClaim

HEADER = "Idempotency-Key"
FORM = "1 to 255 visible ASCII characters, without spaces"
KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
ROWS: Mapping[str, Any] = {"data": True, "sheets": {"__all__": {"data"}}}
ORDERED = ("template", "header", "footer", "sheets")
"""Of what these hold, the order of keys is the order of columns or cells."""


def checked(key: str) -> str:
    """A key as it may be sent."""
    if re.fullmatch(KEY_PATTERN, key) is None:
        raise ValueError(f"it has another form; send {FORM}.")
    return key


def fingerprint(body: BaseModel, rows: bytes = b"") -> bytes:
    """What tells two requests with the same key apart: all that they ask for, whatever its spelling.

    What is left out is the same as its default, so that a key outlives new fields.

    Args:
        body: What was asked for.
        rows: The rows that came along, in the caller's own text: once parsed, digits and the order of keys are lost.
    """
    asked = body.model_dump(mode="json", exclude_defaults=True, exclude=ROWS)
    ordered = {field: asked.pop(field) for field in ORDERED if field in asked}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":")) + (json.dumps(ordered) if ordered else "")
    return hashlib.sha256(text.encode() + rows).digest()


async def claim(database: Database, project_id: str, key: str, fingerprint: bytes, task_id: str) -> str:
    """The download that a key stands for: this one, if the key is new, or the one that it was first sent for.

    Raises:
        Invalid: It was sent with another body.
    """
    owner = await projects.claim_idempotency_key(database, project_id, key, IdempotencyClaim(fingerprint, task_id))
    if owner.fingerprint != fingerprint:
        raise Invalid(
            "idempotency_key_reused",
            f"The {HEADER} {key} was sent before with another body.",
            "Send a new key for a new download, or the same body to get the old one.",
        )
    return owner.task_id
