"""Addresses: change messages, applied once and in order in four modules."""
