"""Transfers at the door: have a file brought to hosts, ask how it goes, cancel; and what a project may send."""

# Each module declares its routes when it is imported.
from api.transfers import browsing, creating, openings, overview, reading, steering
from api.transfers.room import routes

__all__ = ["browsing", "creating", "openings", "overview", "reading", "routes", "steering"]
