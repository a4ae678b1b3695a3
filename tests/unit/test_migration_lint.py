"""Migrations do nothing that makes others wait or fails on data: squawk reads the SQL of each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

from stores import migrate

SQUAWK = Path(sys.executable).with_name("squawk")
POSTGRESQL = "15"
"""The oldest that docs/reference/compatibility.md names."""
TYPES = ("ban-char-field", "prefer-bigint-over-int", "prefer-bigint-over-smallint", "prefer-text-field")
"""Rules about the types of columns: the tables decide those."""
SCRIPTS = list(ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions())


def test_the_files_of_migrations_are_named_after_them_in_their_order() -> None:
    """What API and workers take for the revisions, without Alembic, are those."""
    assert migrate.list_known_revisions() == [script.revision for script in SCRIPTS][::-1]


def render_sql(upgrade: Callable[[], None]) -> str:
    """Return what a migration sends to PostgreSQL, behind the time-outs that each is run with."""
    output = StringIO()
    output.write(f"SET lock_timeout = '{migrate.LOCK_TIMEOUT_SECONDS}s';\n")
    output.write(f"SET statement_timeout = '{migrate.STATEMENT_TIMEOUT_SECONDS}s';\n")
    options = {"as_sql": True, "output_buffer": output, "literal_binds": True}
    with Operations.context(MigrationContext.configure(dialect_name="postgresql", opts=options)):
        upgrade()
    return output.getvalue()


def list_broken_rules(sql: str, excused: Mapping[str, str] | None = None) -> list[str]:
    """Return the rules that SQL breaks, but for those with a reason why they do not count."""
    options = ("--reporter", "json", "--pg-version", POSTGRESQL, "--assume-in-transaction")
    command = [str(SQUAWK), *options, f"--exclude={','.join((*TYPES, *(excused or {})))}"]
    done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return sorted({each["rule_name"] for each in json.loads(done.stdout)})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.revision)
def test_no_migration_makes_others_wait(script: Script) -> None:
    """One that must names the rule and the reason in `excused = {"rule": "reason"}`."""
    assert list_broken_rules(render_sql(script.module.upgrade), getattr(script.module, "excused", None)) == []


def _add_required() -> None:
    op.add_column("downloads", sa.Column("size", sa.BigInteger(), nullable=False))


def _take_away() -> None:
    op.drop_column("downloads", "state")


def _index() -> None:
    op.create_index("ix_downloads_size", "downloads", ["size"])


def _rename() -> None:
    op.alter_column("downloads", "state", new_column_name="phase")


@pytest.mark.parametrize(
    ("upgrade", "rule"),
    [
        (_add_required, "adding-required-field"),
        (_take_away, "ban-drop-column"),
        (_index, "require-concurrent-index-creation"),
        (_rename, "renaming-column"),
    ],
)
def test_a_migration_that_makes_others_wait_is_found(upgrade: Callable[[], None], rule: str) -> None:
    """What old code or a busy table does not survive has a rule, and a reason excuses it."""
    assert list_broken_rules(render_sql(upgrade)) == [rule]
    assert list_broken_rules(render_sql(upgrade), {rule: "nothing reads it any more"}) == []
