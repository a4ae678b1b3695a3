"""Conditions: the little language of conditional styles, read into a tree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Condition:
    """What `>=0 or <=-10` says."""
