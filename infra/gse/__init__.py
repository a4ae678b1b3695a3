"""GSE, which carries files to hosts: a client of its HTTP interface, and the few ways in which a call fails."""

from infra.gse.client import GseClient
from infra.gse.failures import GseFailure, GseForbidden, GseRefused, GseUnavailable, GseUnknown

__all__ = ["GseClient", "GseFailure", "GseForbidden", "GseRefused", "GseUnavailable", "GseUnknown"]
