"""The API of addresses: messages that Pub/Sub pushes, and what operators read and do."""

# Each module declares its routes when it is imported.
from api.addresses import actions, comparisons, configuration, inbox, logical_deletes, overview, queries
from api.addresses.context import routes

__all__ = ["actions", "comparisons", "configuration", "inbox", "logical_deletes", "overview", "queries", "routes"]
