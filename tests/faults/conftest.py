"""Fixtures of the fault tests: a whole house of their own, with real processes to kill."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.house import House, house
from infra.settings import Settings


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[House]:
    """Everything that `haulage up` starts, in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="haulage-faults-"))
    try:
        async with house(Settings().model_copy(update={"data_dir": folder})) as everything:
            yield everything
    finally:
        shutil.rmtree(folder)
