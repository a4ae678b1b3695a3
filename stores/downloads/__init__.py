"""Data access of downloads."""
