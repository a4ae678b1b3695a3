"""Workflows of addresses."""
