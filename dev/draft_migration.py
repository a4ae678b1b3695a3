"""`python -m dev.draft_migration TITLE`: write a migration from the last revision to what the tables say now."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.embedded.stack import run_stack
from stores import migrate


async def draft_migration_in_own_database(title: str) -> Path:
    """Write the migration by a database of its own, and return its path; read it before you commit it."""
    with tempfile.TemporaryDirectory() as folder:
        async with run_stack(Path(folder), ui=False, for_tests=True) as stack:
            url = stack.build_database_url()
            await migrate.migrate(url)
            path = await migrate.draft_migration(url, title)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    written = asyncio.run(draft_migration_in_own_database(sys.argv[1]))
    subprocess.run([Path(sys.executable).with_name("ruff"), "format", "--quiet", written], check=True)
    sys.stdout.write(f"{written}\n")
