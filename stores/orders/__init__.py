"""Data access of orders."""
