"""Books of ours in LibreOffice: it opens them, and sees in them what it sees in xlsxwriter's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import soffice
from tests.books import cases, ours, reference
from tests.support.requirements import LIBREOFFICE


@pytest.fixture(autouse=True)
def _office() -> None:
    """Everything here needs LibreOffice."""
    LIBREOFFICE.require()


BOOKS = 30
FIRST_SEED = 10_000
FIRST_YEAR = 2001
"""LibreOffice cuts seconds off where it should round. Earlier moments lose one in some cells, in xlsxwriter's books as
in ours, but not in the same cells."""


def test_libreoffice_sees_the_cells_that_xlsxwriter_alone_would_write(tmp_path: Path) -> None:
    """Every sheet of random books, as CSV: the same from ours and from the plain writer's."""
    seen = {}
    for writer in (ours, reference):
        books = []
        folder = tmp_path / writer.__name__
        folder.mkdir()
        for seed in range(FIRST_SEED, FIRST_SEED + BOOKS):
            books.append(folder / f"{seed}.xlsx")
            writer.write(cases.case(seed, FIRST_YEAR), books[-1])
        made = soffice.convert(books, soffice.CSV_OF_EACH_SHEET, folder / "csv")
        seen[writer] = {path.name: path.read_text() for path in made}

    assert len(seen[ours]) >= BOOKS
    assert seen[ours] == seen[reference]
