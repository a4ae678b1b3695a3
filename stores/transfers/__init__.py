"""Data access of transfers."""
