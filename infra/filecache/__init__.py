"""Files kept on this host by their SHA-256, shared by all processes on it."""

from infra.filecache.cache import FileCache

__all__ = ["FileCache"]
