"""Coverage: which flaws and options were drawn, which flaws really fired, and how the worlds with them ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.worlds.playing import Noted
from tests.worlds.verdict import Ending

SHOWN = (Ending.EQUAL, Ending.WARNED, Ending.FAILED, Ending.INVISIBLE, Ending.UNKNOWN)


def never_fired(noted: Sequence[Noted], flaws: Iterable[str]) -> list[str]:
    """Flaws that no world showed."""
    fired = {name for each in noted for name in each.fired}
    return sorted(set(flaws) - fired)


def table(noted: Sequence[Noted], flaws: Iterable[str]) -> str:
    """Flaws and options by how worlds with them ended, as Markdown."""
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
    return "\n".join([*lines, *rows]) + "\n"


def _row(name: str, noted: Sequence[Noted], fired: int | None) -> str:
    endings = Counter(each.ending for each in noted)
    defects = sum(count for ending, count in endings.items() if ending.is_defect)
    cells = [name, len(noted), "" if fired is None else fired, *(endings[ending] for ending in SHOWN), defects]
    return "| " + " | ".join(map(str, cells)) + " |"
