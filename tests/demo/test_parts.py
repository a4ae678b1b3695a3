"""The parts of the demo: each does its work and checks it, and its check fails where a stand-in lies."""

from __future__ import annotations

import re

import pytest

from demo.part import Demo, Part, WrongOutcome
from demo.running import PARTS
from demo.tasks import TasksPart
from demo.transfers import TransfersPart
from tests.demo.conftest import ROOT
from tests.support.selecting import mark_long_except

README = (ROOT / "README.md").read_text()

LIARS: dict[str, dict[str, str]] = {
    "downloads": {"source": "The row 0 of"},
    "transfers": {"repository": "2,000 hosts ended otherwise", "gse": "hosts do not have what the API says"},
    "orders": {"platforms": "slices failed"},
    "addresses": {"pubsub": "ed differs in", "modules": "od differs in"},
    "tasks": {},
}
"""What is found out where a stand-in lies, one at a time; of tasks it is the worker that lies."""

SMALL = {
    "demo.downloads": {"CSV_ROWS": 10_000, "BOOK_ROWS": 2_000},
    "demo.addresses": {"CREATES": 400, "SWAPS": 50, "UPDATES": 30, "DELETES": 20, "TOTAL": 500},
    "demo.tasks": {"TASKS": 1_000},
}
"""Amounts that are enough to find a lie."""

CASES = [(kind, *each) for kind in PARTS for each in LIARS[kind().system].items()]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts do less than in the demo."""
    for module, amounts in SMALL.items():
        for name, amount in amounts.items():
            monkeypatch.setattr(f"{module}.{name}", amount)


def ignore(_done: int, _total: int | None, _text: str) -> None:
    """Show nothing."""


@pytest.mark.parametrize("kind", mark_long_except(PARTS, [TransfersPart]), ids=lambda kind: kind().system)
async def test_a_part_checks_its_outcome(demo: Demo, kind: type[Part]) -> None:
    """It says what was done and what was checked, and shows its progress up to the end."""
    part, shown = kind(), list[tuple[int, int | None]]()
    await part.prepare(demo)

    done = await part.run(demo, lambda count, total, _: shown.append((count, total)))
    checked = await part.check(demo)

    assert_readme_shows(part.system, done, checked)
    assert shown[-1][0] == shown[-1][1]


def assert_readme_shows(system: str, done: str, checked: str) -> None:
    """The row of a part in the README is what it says; `…` there stands for anything."""
    [cells] = re.findall(rf"^│ {system} +│ (.*?) +│ (.*)$", README, re.MULTILINE)
    for written, printed in zip(cells, (done, checked), strict=True):
        assert re.fullmatch(".+".join(re.escape(piece) for piece in written.split("…")), printed), (written, printed)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("kind", "liar", "found"), CASES, ids=[liar for _, liar, _ in CASES])
@pytest.mark.long
async def test_a_check_fails_where_a_stand_in_lies(demo: Demo, kind: type[Part], liar: str, found: str) -> None:
    """The check compares with what is true, not with what it was told."""
    part = kind()
    await part.prepare(demo)
    await demo.call_stand_in(liar, "PUT", "/_sim/lie")
    try:
        with pytest.raises(WrongOutcome, match=found):
            await _run_and_check(part, demo)
    finally:
        await demo.call_stand_in(liar, "DELETE", "/_sim/lie")


@pytest.mark.usefixtures("small")
@pytest.mark.long
async def test_a_check_fails_where_a_worker_lies(demo: Demo) -> None:
    """Tasks that it reports as done without doing them have no line in its file."""
    part = TasksPart(lies=True)
    await part.prepare(demo)
    await part.run(demo, ignore)

    with pytest.raises(WrongOutcome, match="reported as done and were not"):
        await part.check(demo)


async def _run_and_check(part: Part, demo: Demo) -> None:
    await part.run(demo, ignore)
    await part.check(demo)
