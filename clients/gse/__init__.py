"""The client of GSE, which sends files to hosts, and the failures of its calls."""

from clients.gse.client import GseClient
from clients.gse.responses import GseFailure, GseForbidden, GseOutcomeUnknown, GseRefused, GseUnavailable

__all__ = ["GseClient", "GseFailure", "GseForbidden", "GseOutcomeUnknown", "GseRefused", "GseUnavailable"]
