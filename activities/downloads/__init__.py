"""The activities of downloads."""
