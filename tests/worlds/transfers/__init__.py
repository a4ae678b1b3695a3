"""Worlds of transfers: callers, a repository, a GSE and hosts that behave as real ones do."""
