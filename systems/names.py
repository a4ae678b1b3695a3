"""The systems, by the names that their packages have in every layer."""

from __future__ import annotations

from typing import Final

SYSTEMS: Final = ("downloads", "transfers", "orders", "addresses", "tasks")
