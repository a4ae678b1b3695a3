"""Verdicts: what came out of a world, held against what may come out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Ending(StrEnum):
    """How a world ended."""

    EQUAL = "equal"  # the outcome is the truth
    WARNED = "warned"  # it differs, and says so
    FAILED = "failed"  # it ended in a sentence with a right cause
    UNKNOWN = "unknown"  # nothing went wrong in it that should have: it shows nothing
    INVISIBLE = "invisible"  # it differs by what no client can see
    # The others are defects.
    SILENT = "silent difference"
    NEEDLESS = "needless failure"
    WRONG_CAUSE = "wrong cause"
    LATE = "no end in time"

    @property
    def is_defect(self) -> bool:
        """Whether this must not be."""
        return self in (Ending.SILENT, Ending.NEEDLESS, Ending.WRONG_CAUSE, Ending.LATE)


WORST_FIRST = (
    *(Ending.LATE, Ending.SILENT, Ending.WRONG_CAUSE, Ending.NEEDLESS),
    *(Ending.FAILED, Ending.WARNED, Ending.INVISIBLE, Ending.UNKNOWN, Ending.EQUAL),
)
"""A world of several parts ends as its worst part did."""


@dataclass(frozen=True)
class Expectation:
    """What may come out of a world, known before it is played."""

    causes: frozenset[str] = frozenset()
    """Codes that it may fail with; none where it must succeed."""
    warnings: frozenset[str] = frozenset()
    """Words of warnings that allow a difference."""
    is_visible: bool = True
    """Whether a client can see all of its flaws."""
    must_say: Mapping[str, str] = field(default_factory=dict)
    """Words of the warning that each of some flaws must lead to, where it fired and the outcome is a success."""


@dataclass(frozen=True)
class Outcome:
    """What came out of a world."""

    is_over: bool
    cause: str | None = None
    """The code that it failed with."""
    message: str = ""
    warnings: Sequence[str] = ()
    difference: str = ""
    """What differs from the truth, in words; nothing where all is equal."""


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of it."""

    ending: Ending
    why: str = ""
    fired: frozenset[str] = field(default_factory=frozenset)


def judge(expected: Expectation, outcome: Outcome, flaws: Sequence[str], fired: frozenset[str]) -> Verdict:
    """Hold an outcome against what may come out.

    Args:
        expected: What may come out.
        outcome: What came out.
        flaws: What was to go wrong.
        fired: What did go wrong.
    """

    def verdict(ending: Ending, why: str = "") -> Verdict:
        return Verdict(ending, why, fired)

    if not outcome.is_over:
        return verdict(Ending.LATE, outcome.message)
    if outcome.cause is not None:
        why = f"{outcome.cause}: {outcome.message}"
        if outcome.cause in expected.causes:
            return verdict(Ending.FAILED if fired or not flaws else Ending.UNKNOWN, why)
        return verdict(Ending.WRONG_CAUSE if expected.causes else Ending.NEEDLESS, why)
    said = " ".join(outcome.warnings)
    if unsaid := [flaw for flaw, words in expected.must_say.items() if flaw in fired and words not in said]:
        return verdict(Ending.SILENT, f"no warning tells of {', '.join(unsaid)}")
    if not outcome.difference:
        return verdict(Ending.EQUAL if fired or not flaws else Ending.UNKNOWN)
    if any(words in said for words in expected.warnings):
        return verdict(Ending.WARNED, said)
    return verdict(Ending.INVISIBLE if not expected.is_visible else Ending.SILENT, outcome.difference)


def differences(truth: Sequence[str], found: Sequence[str]) -> str:
    """What differs between two lists of rows, in words; nothing where they are equal, in order."""
    if list(truth) == list(found):
        return ""
    lost, gained = Counter(truth) - Counter(found), Counter(found) - Counter(truth)
    doubled = {row: count for row, count in gained.items() if row in set(truth)}
    strange = {row: count for row, count in gained.items() if row not in doubled}
    told = [
        f"{sum(rows.values())} {word}, e.g. {next(iter(rows))[:120]!r}"
        for word, rows in (("lost", lost), ("doubled", doubled), ("strange", strange))
        if rows
    ]
    return "; ".join(told) or "the same rows in another order"
