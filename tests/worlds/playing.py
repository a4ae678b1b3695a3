"""Playing many worlds side by side: each is noted as it ends, and those that are noted already are not played again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from tests.worlds.verdict import Ending, Verdict

AT_ONCE = 12
SHRINK_PLAYS_MAX = 60
TELL_EVERY = 50


class AnyWorld(Protocol):
    """What every world has."""

    @property
    def seed(self) -> int:
        """Which it is."""

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""

    @property
    def choices(self) -> dict[str, str]:
        """The options of its request, as texts."""

    def model_dump_json(self) -> str:
        """All of it."""


World = TypeVar("World", bound=AnyWorld)
ROOT = Path(__file__).parents[2]
FOLDER_VARIABLE = "WORLDS_FOLDER"


class Noted(BaseModel):
    """How a world ended."""

    seed: int
    world: str
    """As JSON."""
    flaws: list[str]
    choices: dict[str, str]
    fired: list[str]
    ending: Ending
    why: str = ""
    seconds: float


async def check_nothing() -> None:
    """Return: most systems have nothing to check after their worlds."""


@dataclass(frozen=True)
class System(Generic[World]):
    """How a system's worlds are made, played and made smaller."""

    draw: Callable[[int], World]
    play: Callable[[World], Awaitable[Verdict]]
    smaller: Callable[[World], Sequence[World]]
    """Worlds that are a step smaller than another, in the order in which they are tried."""
    at_once: int = AT_ONCE
    """How many are played side by side."""
    is_for_want_of_time: Callable[[Verdict], bool] = lambda _: False
    """Whether a busy machine may have made a world end so: it is played again, by itself, and that counts."""
    check_all: Callable[[], Awaitable[None]] = check_nothing
    """Asserts what must hold when all worlds have been played."""


def choose_notes(system: str, seed: int) -> Path | None:
    """Return where the worlds of a run are noted; None where no run asks for that.

    The name holds the seed and the code: after a change of either nothing is taken from what was noted before.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) / f"{system}-{seed}-{digest_code(ROOT)}.jsonl" if folder else None


def digest_code(root: Path) -> str:
    """Return a digest of all Python files of a tree, whether they are committed or not."""
    digest = blake2b(digest_size=6)
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


async def play_all(system: System[World], seeds: Sequence[int], notes: Path | None = None) -> list[Noted]:
    """Play the worlds of some seeds.

    Args:
        system: Whose worlds.
        seeds: Which of them.
        notes: Where they are noted, for a run that is broken off and taken up again.
    """
    if notes is not None:
        notes.parent.mkdir(parents=True, exist_ok=True)
    known = {each.seed: each for each in _read(notes)}
    found = [known[seed] for seed in seeds if seed in known]
    turns, began = asyncio.Semaphore(system.at_once), time.monotonic()
    late: list[int] = []

    async def play(seed: int) -> None:
        async with turns:
            noted, verdict = await _play(system, system.draw(seed))
        if system.is_for_want_of_time(verdict):
            late.append(seed)
        else:
            note(noted)

    def note(noted: Noted) -> None:
        found.append(noted)
        if notes is not None:
            with notes.open("a") as out:
                out.write(noted.model_dump_json() + "\n")
        if len(found) % TELL_EVERY == 0 and notes is not None:
            _tell(found, len(seeds), time.monotonic() - began)

    await asyncio.gather(*(play(seed) for seed in seeds if seed not in known))
    for seed in late:  # when no other world is played beside them
        note(await play_one(system, system.draw(seed)))
    return found


async def play_one(system: System[World], world: World) -> Noted:
    """Play a world."""
    noted, _ = await _play(system, world)
    return noted


async def _play(system: System[World], world: World) -> tuple[Noted, Verdict]:
    began = time.monotonic()
    verdict = await system.play(world)
    noted = Noted(
        seed=world.seed,
        world=world.model_dump_json(),
        flaws=world.flaw_names,
        choices=world.choices,
        fired=sorted(verdict.fired),
        ending=verdict.ending,
        why=verdict.why[:1_000],
        seconds=round(time.monotonic() - began, 2),
    )
    return noted, verdict


async def shrink(system: System[World], world: World, ending: Ending) -> World | None:
    """The smallest world that ends as another did; None where that one does not end so again."""
    if (await system.play(world)).ending is not ending:
        return None
    plays = 1
    while True:
        for candidate in system.smaller(world):
            if plays >= SHRINK_PLAYS_MAX:
                return world
            plays += 1
            if (await system.play(candidate)).ending is ending:
                world = candidate
                break
        else:
            return world


def _read(notes: Path | None) -> list[Noted]:
    if notes is None or not notes.exists():
        return []
    return [Noted.model_validate(json.loads(line)) for line in notes.read_text().splitlines()]


def _tell(found: Sequence[Noted], count: int, seconds: float) -> None:
    endings = Counter(each.ending.value for each in found)
    told = ", ".join(f"{number} {name}" for name, number in endings.most_common())
    sys.stderr.write(f"\n{len(found)} of {count} worlds in {seconds:.0f} s: {told}\n")
