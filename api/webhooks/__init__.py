"""Webhooks at the door: the secrets that sign them; systems list and repeat deliveries through `deliveries`."""

# Each module declares its routes when it is imported.
from api.webhooks import secrets
from api.webhooks.room import routes

__all__ = ["routes", "secrets"]
