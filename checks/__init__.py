"""Checks of the source tree that no ready-made tool has: its shape and its words. Run by `make check`."""
