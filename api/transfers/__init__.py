"""Transfers at the door: have a file brought to hosts, ask how it goes, cancel; and what a project may send."""

# Each module declares its routes when it is imported.
from api.transfers import actions, creation, openings, overview, queries
from api.transfers.context import routes

__all__ = ["actions", "creation", "openings", "overview", "queries", "routes"]
