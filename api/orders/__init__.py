"""The API of orders: platforms and their configuration, slices and watermarks, and the orders themselves."""

# Each module declares its routes when it is imported.
from api.orders import actions, configuration, orders, overview, queries, slice_actions, trying
from api.orders.context import routes

__all__ = ["actions", "configuration", "orders", "overview", "queries", "routes", "slice_actions", "trying"]
