"""The modules that keep addresses: a client of their contract, which answers for them when they do not."""

from clients.modules.client import Modules
from clients.modules.connection import ModuleFailure

__all__ = ["ModuleFailure", "Modules"]
