"""The systems, by the names that their packages have in every layer: the one list to which a new system is added."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final, Literal, TypeAlias, get_args

System: TypeAlias = Literal["downloads", "transfers", "orders", "addresses", "tasks"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)


def import_modules(pattern: str) -> dict[System, ModuleType]:
    """Import the module of each system that a pattern names, such as `api.{}` or `domain.{}.names`.

    Only the layer that calls this depends on what it imports: this package knows names alone.
    """
    return {system: importlib.import_module(pattern.format(system)) for system in SYSTEMS}
