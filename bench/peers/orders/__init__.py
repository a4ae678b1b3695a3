"""Peers of the room of orders."""
