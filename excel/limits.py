"""Limits: what a sheet of a book can hold."""

from __future__ import annotations

from typing import Final

SHEET_ROWS_MAX: Final = 1_048_576
SHEET_BYTES_MAX: Final = 2**32 - 64 * 1024 * 1024
"""Of a body's XML: 4 GiB without Zip64, and some room for what stands around it."""
LINKS_MAX: Final = 65_530
"""Of one sheet."""


class BookTooLarge(ValueError):
    """A book that must stay one file would be larger than a file may be.

    Attributes:
        max_bytes: What a file may have.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(f"The book would have more than the {max_bytes:,} bytes that a file may have.")


class SheetFull(ValueError):
    """A sheet has no room for more rows."""
