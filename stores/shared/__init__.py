"""Data access that all systems share: projects, keys, idempotency keys, and pages of lists."""
