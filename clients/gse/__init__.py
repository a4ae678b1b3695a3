"""The client of GSE, which sends files to hosts, and the failures of its calls."""

from clients.gse.client import GseClient
from clients.gse.responses import GseFailure, GseForbidden, GseRefused, GseUnavailable, GseUnknown

__all__ = ["GseClient", "GseFailure", "GseForbidden", "GseRefused", "GseUnavailable", "GseUnknown"]
