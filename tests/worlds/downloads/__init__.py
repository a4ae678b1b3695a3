"""Worlds of downloads: sources that behave as real ones do, and exports of what they have."""
