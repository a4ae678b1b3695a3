"""The systems, by the names that their packages have in every layer: the one list to which a new system is added."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

System: TypeAlias = Literal["downloads", "transfers", "orders", "addresses", "tasks"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)
