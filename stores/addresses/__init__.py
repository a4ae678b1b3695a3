"""Data access of addresses."""
