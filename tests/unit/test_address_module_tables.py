"""The tables that the package brings are those of the page for module owners."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from haulage.address_module import MYSQL, POSTGRESQL, SQLITE, Dialect, build_create_table_statements
from tests.support import module_page


@pytest.mark.parametrize(("name", "dialect"), [("PostgreSQL", POSTGRESQL), ("MySQL", MYSQL), ("SQLite", SQLITE)])
def test_the_page_shows_the_tables_that_the_package_brings(name: str, dialect: Dialect) -> None:
    """Statement by statement; the integration tests run those of the page."""
    assert [each.strip() for each in module_page.tables(name)] == build_create_table_statements(dialect)


def test_the_tables_may_be_made_again(tmp_path: Path) -> None:
    """A module may run the statements whenever it starts: what it has is kept."""
    with closing(sqlite3.connect(tmp_path / "module.sqlite", isolation_level=None)) as connection:
        for _ in range(2):
            for statement in build_create_table_statements(SQLITE):
                connection.execute(statement)
            connection.execute("INSERT OR IGNORE INTO haulage_marks VALUES (1, 2, 3)")
        assert connection.execute("SELECT * FROM haulage_marks").fetchall() == [(1, 2, 3)]
