"""Clients of outside systems that we call."""
