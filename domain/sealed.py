"""Sealed text: a secret that may travel through history, logs and pages because only the sealer can read it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SealedText(BaseModel):
    """Encrypted text. It prints as what it is, so that a log line that holds one gives nothing away."""

    model_config = ConfigDict(frozen=True)

    token: str

    def __repr__(self) -> str:
        return "Sealed(…)"

    __str__ = __repr__
