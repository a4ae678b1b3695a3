"""Data access of tasks."""
