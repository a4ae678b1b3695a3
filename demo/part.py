"""The part of a system in the demo: what every part offers, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

Show = Callable[[int, int | None, str], None]
"""Shows how much is done, of how much (None while it is not known), and the amount in words."""


class PartDisplay(Protocol):
    """Shows how far several things are, each by its name."""

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        """Show one of them.

        Args:
            total: None while it is not known.
            text: The amount in words, with its unit.
        """


class WrongOutcome(Exception):
    """The outcome is not what it must be; the message says which, and what was expected."""


@dataclass(frozen=True)
class Demo:
    """A running installation, as a part uses it."""

    api: str
    key: str
    """The key of the demo's project."""
    admin_key: str
    stand_ins: Mapping[str, str]
    """The address of each stand-in by its name."""
    stand_in_folder: Path
    """What the stand-ins keep: the files of GSE's hosts, the tables of the modules."""
    folder: Path
    """Where a part leaves its files."""
    session: aiohttp.ClientSession

    async def call_stand_in(self, name: str, method: str, path: str, **options: Any) -> Any:
        """Send a request to a stand-in and return the JSON of its response; raise if it refuses."""
        async with self.session.request(method, self.stand_ins[name] + path, **options) as response:
            if response.status >= 400:
                raise WrongOutcome(f"The stand-in {name} answered {response.status}: {await response.text()}")
            return await response.json()


class Part(Protocol):
    """One system in the demo. The three methods are called in this order, on one object."""

    system: str

    async def prepare(self, demo: Demo) -> None:
        """Configure the system and its stand-in."""

    async def run(self, demo: Demo, show: Show) -> str:
        """Do the work, show its progress, and return in a few words what was done."""

    async def check(self, demo: Demo) -> str:
        """Compare the outcome with what the stand-in knows to be true; return in a few words what was compared.

        Raises:
            WrongOutcome: Something is not as it must be.
        """
