"""Report: what became of a book, and what a user should know of all books of an export."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from excel.limits import LINKS_MAX


class BookReport(BaseModel):
    """What became of a book."""

    rows: int
    """Of data, in all tables; reserved rows that have none are not among them."""
    bytes: int
    cut_cells: int = 0
    """Cells whose text was longer than a cell can hold, or had more lines."""
    long_numbers: int = 0
    """Numbers that stand as texts, because Excel would change them."""
    plain_links: int = 0
    """Addresses that stand as texts, because a sheet has no more links."""
    empty_columns: list[str] = []
    """The titles of the columns that have no value in any row."""


def warnings(reports: Sequence[BookReport]) -> list[str]:
    """What was changed so that Excel can hold it, and which columns are empty in all books."""
    long_numbers = sum(report.long_numbers for report in reports)
    cut_cells = sum(report.cut_cells for report in reports)
    plain_links = sum(report.plain_links for report in reports)
    found = []
    if long_numbers:
        found.append(f"Numbers that stand as texts, as they have more digits than Excel keeps: {long_numbers:,}.")
    if cut_cells:
        found.append(f"Texts that are cut, as they were longer than a cell of Excel holds: {cut_cells:,}.")
    if plain_links:
        found.append(f"Addresses that stand as texts, as a sheet has {LINKS_MAX:,} links at most: {plain_links:,}.")
    empty = [title for title in reports[0].empty_columns if all(title in each.empty_columns for each in reports)]
    return found + [f"The column “{title}” is empty: no row has a value for it." for title in empty]
