"""The modules that keep addresses: a client of their contract."""

from clients.modules.client import ModulesClient
from clients.modules.connection import ModuleFailure

__all__ = ["ModuleFailure", "ModulesClient"]
