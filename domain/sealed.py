"""Sealed text: an encrypted secret that workflow histories and logs may hold."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SealedText(BaseModel):
    """Encrypted text; its repr shows nothing of it."""

    model_config = ConfigDict(frozen=True)

    token: str

    def __repr__(self) -> str:
        return "Sealed(…)"

    __str__ = __repr__
