"""The next version: a copy of this tree with one more migration, one changed workflow and one more field."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import domain
from stores import migrate

ROOT = Path(__file__).parents[2]
_MAJOR, _MINOR, _ = domain.VERSION.split(".")
VERSION = f"{_MAJOR}.{int(_MINOR) + 1}.0"
REVISION = "rehearsal"
_MIGRATION = '''"""One more column, which the code before knows nothing of."""

from __future__ import annotations

from alembic import op

revision = "{revision}"
down_revision = "{before}"
oldest_code = "{before}"


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE downloads ADD COLUMN rehearsed varchar")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE downloads DROP COLUMN rehearsed")
'''
_PROBE = "            progress.sources = await self._probe_sources()\n"
CHANGES: Mapping[str, tuple[str, str]] = {
    # The version, by which workflows know which steps are new.
    "domain/__init__.py": (f'VERSION = "{domain.VERSION}"', f'VERSION = "{VERSION}"'),
    # The new column is written, and read with the others.
    "stores/tables/downloads.py": (
        '    __tablename__ = "downloads"\n',
        '    rehearsed: str | None = None\n    __tablename__ = "downloads"\n',
    ),
    "stores/downloads/catalogue.py": (
        'begun = {"state": DownloadState.RUNNING,',
        'begun = {"rehearsed": "yes", "state": DownloadState.RUNNING,',
    ),
    # A field that older workers do not know.
    "domain/downloads/activity_models.py": (
        '    """How often it was processed, this time included."""\n',
        '    """How often it was processed, this time included."""\n    rehearsed: str = "yes"\n',
    ),
    # A step that older workers do not take.
    "workflows/downloads/download.py": (
        _PROBE,
        f'            if workflow.patched("{VERSION} waits"):\n                await workflow.sleep(0.2)\n{_PROBE}',
    ),
}
"""By file: what is replaced, and by what."""


def build_next_version(folder: Path) -> None:
    """Copy this tree into an empty folder, and change it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name, (before, after) in CHANGES.items():
        text = (folder / name).read_text()
        assert text.count(before) == 1, f"{name} has {text.count(before)} times: {before}"
        (folder / name).write_text(text.replace(before, after))
    migration = _MIGRATION.format(revision=REVISION, before=migrate.get_head_revision())
    (folder / "stores" / "migrations" / "versions" / f"{REVISION}.py").write_text(migration)
