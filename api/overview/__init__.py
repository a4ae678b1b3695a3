"""The overview: the health of the components and the workload of every system."""

from api.overview.routes import routes

__all__ = ["routes"]
