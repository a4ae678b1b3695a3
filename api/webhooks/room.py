"""Where routes of webhooks are declared."""

from __future__ import annotations

from api.http.routes import Routes

routes = Routes("webhooks", "The secrets that sign messages to your addresses (Standard Webhooks).")
