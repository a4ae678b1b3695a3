"""Addresses: intake, and the steps of a cycle."""
