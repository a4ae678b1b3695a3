"""Workflows of orders."""
