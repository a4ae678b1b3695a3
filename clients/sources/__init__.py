"""The sources of downloads: addresses that users give, asked for their rows page by page."""

from clients.sources.client import SourceClient

__all__ = ["SourceClient"]
