"""Import the same module of every system."""

from __future__ import annotations

import importlib
from types import ModuleType

from systems.names import SYSTEMS, System


def import_modules(pattern: str) -> dict[System, ModuleType]:
    """The module of each system that a pattern names, such as `api.{}` or `domain.{}.names`.

    Only the layer that calls depends on what it imports: this package knows names alone.
    """
    return {system: importlib.import_module(pattern.format(system)) for system in SYSTEMS}
