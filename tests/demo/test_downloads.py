"""The part of downloads in the demo: each of its files is compared on its own."""

from __future__ import annotations

import pytest

from demo.downloads import DownloadsPart, check_book, check_csv
from demo.part import Demo, WrongOutcome


@pytest.mark.long
async def test_both_files_of_a_lying_source_are_wrong(demo: Demo) -> None:
    """The text and the workbook have the invented city; each check names its row."""
    part = DownloadsPart()
    await part.prepare(demo)
    await demo.call_stand_in("source", "PUT", "/_sim/lie")
    try:
        await part.run(demo, lambda _done, _total, _text: None)
    finally:
        await demo.call_stand_in("source", "DELETE", "/_sim/lie")

    with pytest.raises(WrongOutcome, match=r"row 0 of .*\.csv.*Nowhere"):
        check_csv(demo.folder / "orders.csv")
    with pytest.raises(WrongOutcome, match=r"row 0 of .*\.xlsx.*Nowhere"):
        check_book(demo.folder / "orders.xlsx")
