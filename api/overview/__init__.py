"""The overview: how the parts do and what every room has to do, for one project or for all."""

from api.overview.room import routes

__all__ = ["routes"]
