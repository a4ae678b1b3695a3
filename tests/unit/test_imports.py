"""What a floor loads when it is imported: the door and the plan stay light."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pandas", "pyarrow", "xlsxwriter")


@pytest.mark.parametrize("module", ["api.app", "workflows.downloads"])
def test_light_floors_load_no_heavy_library(module: str) -> None:
    """API processes and workflow modules never pay for data frames."""
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {set(HEAVY)!r}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
