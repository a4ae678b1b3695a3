"""The values of options that worlds ask after are values that they draw: else what they stand for is never played."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.worlds.addresses.options import OPTIONS as ADDRESSES
from tests.worlds.downloads.world import OPTIONS as DOWNLOADS
from tests.worlds.orders.options import OPTIONS as ORDERS
from tests.worlds.pairwise import Options
from tests.worlds.tasks.options import OPTIONS as TASKS
from tests.worlds.transfers.options import OPTIONS as TRANSFERS

WORLDS = Path(__file__).parents[1] / "worlds"
DRAWN = {
    "addresses": ADDRESSES,
    "downloads": DOWNLOADS,
    "orders": ORDERS,
    "tasks": TASKS,
    "transfers": TRANSFERS,
}
COMPARED = re.compile(r'options\["(\w+)"\] (?:==|!=) "([^"]*)"')
COMPARED_WITH_SEVERAL = re.compile(r'options\["(\w+)"\] (?:not )?in [({]([^)}]*)[)}]')
ASKED = re.compile(r'\bis_so\("(\w+)", ([^)]*)\)')
MATCHED = re.compile(r'match [\w.]*options\["(\w+)"\]:\n(.*?)(?=\n\n|\Z)', re.DOTALL)
CASE = re.compile(r"case ([^:_][^:]*):")
TEXT = re.compile(r'"([^"]*)"')


def list_asked(folder: Path) -> set[tuple[str, str]]:
    """List the options with a value that the modules of a system ask after."""
    found = set()
    for file in folder.glob("*.py"):
        source = file.read_text()
        found |= set(COMPARED.findall(source))
        for option, values in COMPARED_WITH_SEVERAL.findall(source) + ASKED.findall(source):
            found |= {(option, value) for value in TEXT.findall(values)}
        for option, cases in MATCHED.findall(source):
            found |= {(option, value) for case in CASE.findall(cases) for value in TEXT.findall(case)}
    return found


@pytest.mark.parametrize(("system", "options"), DRAWN.items())
def test_what_is_asked_after_is_drawn(system: str, options: Options) -> None:
    """A value that was renamed in one place only is found here."""
    asked = list_asked(WORLDS / system)
    assert asked
    assert {each for each in asked if each[1] not in options.get(each[0], (each[1],))} == set()
