"""The modules that keep addresses: a client of their contract, which answers for them when they do not."""

from clients.modules.channel import ModuleFailure
from clients.modules.client import Modules

__all__ = ["ModuleFailure", "Modules"]
