"""The tests that CONTRIBUTING.md shows, run as they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.stack

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
KILLS = "deployment: Deployment"
"""An example with this needs fixtures of `tests/faults/`."""

_shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

for _example in _shown:
    if KILLS not in _example:
        # Names of its own: each example is a file of its own to its reader, with imports that others do not see.
        _names: dict[str, object] = {}
        exec(_example, _names)  # noqa: S102 - what the page shows is what is tested
        globals().update({name: each for name, each in _names.items() if name.startswith("test_")})


def test_the_page_shows_every_system() -> None:
    """No system is left out, and what kills is shown, too."""
    for system in ("Downloads", "Transfers", "Orders", "Addresses", "Tasks", "Webhooks"):
        assert any(f": {system}" in each for each in _shown), system
    assert any(KILLS in each for each in _shown)
