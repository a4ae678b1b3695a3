"""Addresses at the door: what Pub/Sub pushes."""

# Each module declares its routes when it is imported.
from api.addresses import events
from api.addresses.room import routes

__all__ = ["events", "routes"]
