"""Data access of webhooks."""
