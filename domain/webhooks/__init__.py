"""The rules of webhooks."""
