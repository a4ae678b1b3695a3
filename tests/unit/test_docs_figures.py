"""Measured figures in documents equal their records in `bench/results`.

A document names the record of each figure in a comment below it, one line each, with the figure in braces:

    <!-- figures
    tasks: ours ÷ pgqueuer: full cycle | {3.4} × pgqueuer
    downloads: 1,000,000 / ours, 1,000,000 rows | a million rows of CSV in {2} s
    -->

On the left are the record and the name of its figure, or a number divided by it; on the right is the text as it is in
the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
PAGES = [ROOT / "README.md", *sorted(path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "adr")]

BLOCK = re.compile(r"<!-- figures\n(.*?)-->", re.DOTALL)
LINE = re.compile(r"(?P<record>\w+): (?:(?P<dividend>[\d,]+) / )?(?P<name>.+?) \| (?P<text>.+)")
RATIO = re.compile(r"[\d.,]*\d ×")
SCALES = (1e-6, 1e-3, 1, 1e3, 1e6)
"""A document may write millions for ones, or milliseconds for seconds."""


@dataclass(frozen=True)
class Claim:
    """A figure of a document, and the record that it is from."""

    record: str
    name: str
    dividend: float | None
    before: str
    shown: str
    after: str

    @property
    def text(self) -> str:
        """The text of the document."""
        return f"{self.before}{self.shown}{self.after}"


def read_claims(page: str) -> Iterator[Claim]:
    """The figures that a page names the records of."""
    for block in BLOCK.findall(page):
        for line in block.strip().splitlines():
            found = LINE.fullmatch(line)
            assert found, f"This line names no figure: {line}"
            before, shown, after = re.split(r"[{}]", found["text"])
            dividend = float(found["dividend"].replace(",", "")) if found["dividend"] else None
            yield Claim(found["record"], found["name"], dividend, before, shown, after)


@cache
def read_record(name: str) -> dict[str, float]:
    """The figures of a record by name."""
    figures = json.loads((RESULTS / f"{name}.json").read_text())["figures"]
    return {figure["name"]: figure["value"] for figure in figures}


def equals(shown: str, value: float) -> bool:
    """Whether a figure is a value rounded to the digits that it shows; zeros at its end may be rounded."""
    digits = shown.replace(",", "")
    decimals = len(digits.partition(".")[2])
    zeros = 0 if decimals else len(digits) - len(digits.rstrip("0"))
    if not float(digits):
        return value == 0
    unit = 10.0 ** (zeros or -decimals)
    return any(abs(value * scale - float(digits)) <= unit / 2 * 1.0001 for scale in SCALES)


@pytest.mark.parametrize(
    ("shown", "value", "expected"),
    [
        ("2.8", 2.8166, True),
        ("2.9", 2.8166, False),
        ("0.50", 0.5049, True),
        ("0.50", 0.5051, False),
        ("37,000", 37_075.4, True),
        ("38,000", 37_075.4, False),
        ("6.8", 6_787_142.9, True),
        ("220", 0.2203, True),
        ("0", 1.0, False),
        ("7", 8.0, False),
    ],
)
def test_a_figure_is_compared_to_the_digits_that_it_shows(shown: str, value: float, expected: bool) -> None:
    """In whichever unit of a thousand it is written."""
    assert equals(shown, value) is expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_figures_equal_their_records(page: Path) -> None:
    """The text is in the document, and its figure in the record."""
    text = page.read_text()
    prose = " ".join(BLOCK.sub("", text).split())
    for claim in read_claims(text):
        value = read_record(claim.record)[claim.name]
        value = claim.dividend / value if claim.dividend else value
        assert claim.text in prose
        assert equals(claim.shown, value), f"{claim.text}: the record of {claim.record} has {value}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_ratio_names_its_record(page: Path) -> None:
    """A comparison with others that no record backs is not written down."""
    text = page.read_text()
    rest = " ".join(BLOCK.sub("", text).split())
    for claim in read_claims(text):
        rest = rest.replace(claim.text, claim.text.replace("×", ""))

    assert RATIO.findall(rest) == []


def test_rivals_that_win_are_in_the_readme() -> None:
    """Every ratio of a record below one is in a document; the README has those of the largest size."""
    pages = [claim for page in PAGES for claim in read_claims(page.read_text())]
    named = {(claim.record, claim.name) for claim in pages}
    lost = {
        (path.stem, name)
        for path in RESULTS.glob("*.json")
        if not path.stem.endswith("-small")  # a quick run
        for name, value in read_record(path.stem).items()
        if name.startswith("ours") and "÷" in name and value < 1
    }

    assert ("addresses", "ours ÷ buffered sink") in lost
    assert lost - named == set()
