"""Limits: what a workbook can hold, the errors where data exceed it, and the report of what was changed to fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pydantic import BaseModel

SHEET_ROWS_MAX: Final = 1_048_576
SHEET_BYTES_MAX: Final = 2**32 - 64 * 1024 * 1024
"""Of a body's XML: 4 GiB without Zip64, less a reserve for the frame around it."""
LINKS_MAX: Final = 65_530
"""Hyperlinks of one sheet."""


class WorkbookFileTooLarge(ValueError):
    """A workbook that must be one file would be larger than a file may be.

    Attributes:
        max_bytes: The size that a file may have.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(f"The workbook would have more than the {max_bytes:,} bytes that a file may have.")


class SheetFull(ValueError):
    """A sheet cannot hold more rows."""


_NAMES_SHOWN = 20
_NAME_SHOWN_CHARACTERS = 60


class UncoveredRows(ValueError):
    """Rows of data have keys that no row head has.

    Attributes:
        names: These keys, each once, in the order of the data.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        listed = ", ".join(
            f"“{name[:_NAME_SHOWN_CHARACTERS]}{'…' * (len(name) > _NAME_SHOWN_CHARACTERS)}”"
            for name in names[:_NAMES_SHOWN]
        )
        more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
        super().__init__(f"No row head covers the rows of {listed}{more}.")


class WorkbookSizeAndCellChanges(BaseModel):
    """What was written to a workbook, and what was changed to fit."""

    rows: int
    """Rows of data in all tables, without reserved rows that have no data."""
    bytes: int
    cut_cells: int = 0
    """Cells whose text was longer than a cell can hold, or had more lines."""
    long_numbers: int = 0
    """Numbers written as texts, because Excel would change them."""
    plain_links: int = 0
    """Addresses written as texts, because a sheet has no more links."""
    empty_columns: list[str] = []
    """The titles of the columns that have no value in any row."""
    empty_places: str = "0"
    """Which columns these are: a bit for each column of all tables, the first one lowest, in hexadecimal."""

    def build_copy_for_list(self, *, is_first: bool) -> WorkbookSizeAndCellChanges:
        """Return the report for a list of several, where the titles of the first one are enough."""
        return self if is_first else self.model_copy(update={"empty_columns": []})


def list_warnings(reports: Sequence[WorkbookSizeAndCellChanges]) -> list[str]:
    """Return sentences on what was changed to fit into Excel, and on columns that are empty in all workbooks."""
    long_numbers = sum(report.long_numbers for report in reports)
    cut_cells = sum(report.cut_cells for report in reports)
    plain_links = sum(report.plain_links for report in reports)
    found = []
    if long_numbers:
        found.append(f"Numbers written as texts, as they have more digits than Excel keeps: {long_numbers:,}.")
    if cut_cells:
        found.append(f"Texts that were cut, as they were longer than a cell of Excel holds: {cut_cells:,}.")
    if plain_links:
        found.append(f"Addresses written as texts, as a sheet has {LINKS_MAX:,} links at most: {plain_links:,}.")
    in_all = reduce(and_, (int(report.empty_places, 16) for report in reports))
    # Reports from before `empty_places` have titles without places: none of their columns is named.
    empty = zip(_list_places(int(reports[0].empty_places, 16)), reports[0].empty_columns, strict=False)
    return found + [
        f"The column “{title}” is empty: no row has a value for it." for place, title in empty if in_all >> place & 1
    ]


def _list_places(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]
