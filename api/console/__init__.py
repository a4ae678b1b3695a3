"""The console: the pages of every system in a browser."""

from api.console.routes import routes

__all__ = ["routes"]
