"""Addresses: every change message applied once, in order, in four modules."""
