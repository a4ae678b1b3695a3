"""Transfers at the door: have a file brought to hosts, ask how it goes, cancel."""

# Each module declares its routes when it is imported.
from api.transfers import creating, reading, steering
from api.transfers.room import routes

__all__ = ["creating", "reading", "routes", "steering"]
