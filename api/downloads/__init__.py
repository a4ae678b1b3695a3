"""The HTTP routes of downloads: start one, watch it, cancel or retry it, fetch its file."""

# Each module declares its routes when it is imported.
from api.downloads import actions, creation, events, files, preview, queries, quotas
from api.downloads.context import routes

__all__ = ["actions", "creation", "events", "files", "preview", "queries", "quotas", "routes"]
