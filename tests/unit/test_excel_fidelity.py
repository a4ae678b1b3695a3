"""Workbooks compared with those of a plain writer by xlsxwriter alone: every cell, look, merge, width and height."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import cases, ours, reference, seen
from tests.support.selecting import mark_long_except

BATCHES = 10
BOOKS_IN_A_BATCH = 15


@pytest.mark.parametrize("batch", mark_long_except(range(BATCHES), (0, 3, 6, 9)))
def test_a_book_of_ours_is_what_xlsxwriter_alone_would_draw(tmp_path: Path, batch: int) -> None:
    """Random templates, regions and data, read back by two readers of others; a failure names the seed."""
    for seed in range(batch * BOOKS_IN_A_BATCH, (batch + 1) * BOOKS_IN_A_BATCH):
        case = cases.case(seed)
        reference.write(case, tmp_path / "reference.xlsx")
        ours.write(case, tmp_path / "ours.xlsx")
        expected, found = seen.sheets(tmp_path / "reference.xlsx"), seen.sheets(tmp_path / "ours.xlsx")
        assert list(found) == list(expected), f"tests.books.cases.case({seed})"
        for name, sheet in expected.items():
            for part, right in vars(sheet).items():
                assert vars(found[name])[part] == right, f"{part} of {name} in tests.books.cases.case({seed})"
