"""Coverage: which flaws and options were drawn, which flaws really fired, and how the worlds with them ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.worlds.playing import Noted
from tests.worlds.verdict import Ending

LETTERS = {Ending.EQUAL: "e", Ending.WARNED: "w", Ending.FAILED: "f", Ending.INVISIBLE: "i", Ending.UNKNOWN: "u"}
DEFECT = "d"
SHOWN = (Ending.EQUAL, Ending.WARNED, Ending.FAILED, Ending.INVISIBLE, Ending.UNKNOWN)


def never_fired(noted: Sequence[Noted], flaws: Iterable[str]) -> list[str]:
    """Flaws that no world showed."""
    fired = {name for each in noted for name in each.fired}
    return sorted(set(flaws) - fired)


def table(noted: Sequence[Noted], flaws: Iterable[str]) -> str:
    """Flaws and options by how worlds with them ended, and each flaw with each option, as Markdown."""
    rows = [_row("all worlds", noted, None)]
    for name in flaws:
        drawn = [each for each in noted if name in each.flaws]
        rows.append(_row(f"`{name}`", drawn, sum(name in each.fired for each in drawn)))
    by_choice: dict[str, list[Noted]] = defaultdict(list)
    for each in noted:
        for option, value in each.choices.items():
            by_choice[f"{option} = {value}"].append(each)
    rows += [_row(choice, by_choice[choice], None) for choice in sorted(by_choice)]
    heads = ["", "drawn", "fired", *(ending.value for ending in SHOWN), "defects"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *rows, "", *_render_crossed_flaws(noted, flaws)]) + "\n"


def _render_crossed_flaws(noted: Sequence[Noted], flaws: Iterable[str]) -> Iterator[str]:
    """How often each flaw fired beside each value of an option, with a letter for each ending."""
    options = sorted({option for each in noted for option in each.choices})
    yield "Fired beside: " + ", ".join(f"{letter} = {ending.value}" for ending, letter in LETTERS.items())
    yield f"{DEFECT} = defect"
    yield ""
    yield "| " + " | ".join(["", *options]) + " |"
    yield "|" + "---|" * (len(options) + 1)
    for name in flaws:
        fired = [each for each in noted if name in each.fired]
        yield "| " + " | ".join([f"`{name}`", *(_beside(fired, option) for option in options)]) + " |"


def _beside(fired: Sequence[Noted], option: str) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in fired:
        if option in each.choices:
            counts[each.choices[option]][LETTERS.get(each.ending, DEFECT)] += 1
    return ", ".join(
        f"{value}: " + " ".join(f"{count}{letter}" for letter, count in sorted(by_letter.items()))
        for value, by_letter in sorted(counts.items())
    )


def _row(name: str, noted: Sequence[Noted], fired: int | None) -> str:
    endings = Counter(each.ending for each in noted)
    defects = sum(count for ending, count in endings.items() if ending.is_defect)
    cells = [name, len(noted), "" if fired is None else fired, *(endings[ending] for ending in SHOWN), defects]
    return "| " + " | ".join(map(str, cells)) + " |"
