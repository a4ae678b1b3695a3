"""The console: every room in a browser, from files that stand beside this one."""

from api.console.room import routes

__all__ = ["routes"]
