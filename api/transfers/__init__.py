"""Transfers at the door: have a file brought to hosts, ask how it goes, cancel."""

# Each module declares its routes when it is imported.
from api.transfers import browsing, creating, reading, steering
from api.transfers.room import routes

__all__ = ["browsing", "creating", "reading", "routes", "steering"]
