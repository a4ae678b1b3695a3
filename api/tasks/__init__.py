"""Tasks at the door: flowSvr's routes, with batches, leases, heartbeats, cancelling and pausing beside them."""

# Each module declares its routes when it is imported.
from api.tasks import browsing, creating, holding, managing, overview, reading, setting
from api.tasks.room import routes

__all__ = ["browsing", "creating", "holding", "managing", "overview", "reading", "routes", "setting"]
