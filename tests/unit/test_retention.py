"""The table of retentions names everything that is stored, and says what the settings say."""

from __future__ import annotations

import importlib
import pkgutil

from infra.database import TableRow
from infra.limits import limiter  # noqa: F401 - declares the tables of limits
from stores import tables
from tests.support import retention
from tests.support.retention import RETENTIONS
from workflows import systems


def test_every_table_has_a_retention() -> None:
    """One that is new must be added, with how long its rows are kept, or why for ever."""
    for module in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
        importlib.import_module(module.name)
    named = [each for kept in RETENTIONS for each in kept.where if not each.endswith("/")]
    assert sorted(named) == sorted(set(named))
    assert {*named} == {*TableRow.metadata.tables}


def test_what_is_kept_for_a_time_is_removed_by_a_schedule_that_exists() -> None:
    """A setting alone removes nothing."""
    schedules = {f"{names.SYSTEM}-housekeeping" for names in systems.import_names_modules()}
    assert {kept.by for kept in RETENTIONS if kept.setting} <= schedules
    assert all(bool(kept.setting) != bool(kept.fixed) for kept in RETENTIONS)


def test_the_page_has_the_table() -> None:
    """`python -m tests.support.retention` renews it."""
    assert retention.read_page() == retention.render()
