"""The activities of transfers."""
