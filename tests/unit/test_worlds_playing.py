"""Runs of worlds: what is noted is used again only with the same seed and the same code; coverage crosses all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from tests.worlds import coverage
from tests.worlds.playing import FOLDER_VARIABLE, Noted, System, choose_notes, digest_code, play_all
from tests.worlds.verdict import Ending, Verdict


class SmallWorld(BaseModel):
    """A world that is nothing but a number."""

    model_config = ConfigDict(frozen=True)

    seed: int

    @property
    def flaw_names(self) -> list[str]:
        return ["cap"]

    @property
    def choices(self) -> dict[str, str]:
        return {"type": "csv"}


def test_what_is_noted_is_not_played_again(tmp_path: Path) -> None:
    """A run that is taken up plays only what it had not."""
    played: list[int] = []

    async def play(world: SmallWorld) -> Verdict:
        played.append(world.seed)
        return Verdict(Ending.EQUAL, fired=frozenset({"cap"}))

    system = System(lambda seed: SmallWorld(seed=seed), play, lambda _: [])
    first = asyncio.run(play_all(system, [1, 2], tmp_path / "notes.jsonl"))
    second = asyncio.run(play_all(system, [1, 2, 3], tmp_path / "notes.jsonl"))
    assert played == [1, 2, 3]
    assert second[:2] == first


def test_notes_are_of_one_seed_and_one_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is noted unless it is asked for."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert choose_notes("downloads", 7) is None
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    notes = choose_notes("downloads", 7)
    assert notes is not None
    assert notes.parent == tmp_path
    assert notes == choose_notes("downloads", 7)
    assert notes != choose_notes("downloads", 8)


def test_a_change_of_the_code_shows_in_its_digest(tmp_path: Path) -> None:
    """Of any Python file, its name, or its place; not of hidden folders."""
    (tmp_path / "domain").mkdir()
    (tmp_path / ".venv").mkdir()
    file = tmp_path / "domain" / "plan.py"
    file.write_text("A = 1\n")
    before = digest_code(tmp_path)
    (tmp_path / ".venv" / "other.py").write_text("A = 1\n")
    (tmp_path / "domain" / "notes.txt").write_text("not code")
    assert digest_code(tmp_path) == before
    file.write_text("A = 2\n")
    changed = digest_code(tmp_path)
    file.rename(tmp_path / "domain" / "other.py")
    assert len({before, changed, digest_code(tmp_path)}) == 3


def note(seed: int, kind: str, ending: Ending, *, fired: bool = True) -> Noted:
    """A world with one flaw and one option."""
    return Noted(
        seed=seed,
        world="{}",
        flaws=["cap"],
        choices={"type": kind},
        fired=["cap"] if fired else [],
        ending=ending,
        seconds=1.0,
    )


def test_coverage_crosses_flaws_options_and_endings() -> None:
    """Only worlds in which the flaw fired count beside an option; a defect has a letter of its own."""
    noted = [
        note(1, "csv", Ending.EQUAL),
        note(2, "csv", Ending.EQUAL),
        note(3, "csv", Ending.FAILED),
        note(4, "excel", Ending.SILENT),
        note(5, "excel", Ending.UNKNOWN, fired=False),
    ]
    lines = coverage.table(noted, ["cap", "ties"]).splitlines()
    assert "| `cap` | 5 | 4 | 2 | 0 | 1 | 0 | 1 | 1 |" in lines
    assert "| `cap` | csv: 2e 1f, excel: 1d |" in lines
    assert "| `ties` |  |" in lines
    assert coverage.never_fired(noted, ["cap", "ties"]) == ["ties"]
