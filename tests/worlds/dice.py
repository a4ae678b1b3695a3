"""Dice: every part of a world is drawn from a stream of its own, so that leaving one part out changes no other."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

Value = TypeVar("Value")


def stream(seed: int, *part: object) -> Random:
    """The random numbers of one part of a world."""
    text = "/".join(map(str, (seed, *part)))
    return Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))


def share(seed: int, *part: object) -> float:
    """One number from 0 up to 1."""
    return stream(seed, *part).random()


def pick(values: Sequence[Value], seed: int, *part: object) -> Value:
    """One of some values."""
    return stream(seed, *part).choice(values)
