"""GSE, which carries files to hosts: a client of its HTTP interface, and the few ways in which a call fails."""

from clients.gse.client import GseClient
from clients.gse.failures import GseFailure, GseForbidden, GseRefused, GseUnavailable, GseUnknown

__all__ = ["GseClient", "GseFailure", "GseForbidden", "GseRefused", "GseUnavailable", "GseUnknown"]
