"""The HTTP API of transfers: create, query, cancel and retry them, and restrict what a project may send."""

# Each module declares its routes when it is imported.
from api.transfers import actions, overview, queries
from api.transfers.context import routes

__all__ = ["actions", "overview", "queries", "routes"]
