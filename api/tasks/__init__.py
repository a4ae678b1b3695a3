"""HTTP API of tasks: flowSvr's routes, and batches, leases, heartbeats, cancelling and pausing."""

# Each module declares its routes when it is imported.
from api.tasks import actions, holds, overview, queries
from api.tasks.context import routes

__all__ = ["actions", "holds", "overview", "queries", "routes"]
