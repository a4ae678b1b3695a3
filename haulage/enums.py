"""Enumerations of answers: a newer API may send values that an older client does not know."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ExtensibleEnum(StrEnum):
    """An enumeration that takes any text: one that it does not know becomes a value without a constant.

    Such a value is equal to its text and to itself, and is not listed by its class. States are closed instead: see
    `docs/reference/compatibility.md`.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member
