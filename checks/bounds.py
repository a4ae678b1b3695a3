"""Bounds: what a figure of the tree may be today, and how figures are printed and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PLACES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound that a figure is held to, and the target that the bound is moving to."""

    most: float
    target: float
    least: float = 0
    """Below this the figure is out of bounds as well."""
    target_least: float = 0

    def admits(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True)
class Figure:
    """A count over the tree, and the places that were counted, the worst first."""

    name: str
    value: float
    places: Sequence[str] = ()


def render(figures: Sequence[Figure], bounds: dict[str, Bound], *, is_complete: bool = False) -> str:
    """Return one line a figure with its bound, and below it the places: all, or some where it is out of bounds."""
    width = max(len(figure.name) for figure in figures)
    lines = []
    for figure in figures:
        bound = bounds[figure.name]
        is_within = bound.admits(figure.value)
        verdict = "" if is_within else "   OUT OF BOUNDS"
        allowed, target = _format_range(bound.least, bound.most), _format_range(bound.target_least, bound.target)
        lines.append(f"{figure.name:<{width}}  {figure.value:>8g}   bound {allowed}, target {target}{verdict}")
        shown = figure.places if is_complete else () if is_within else figure.places[:PLACES_SHOWN]
        lines += [f"    {place}" for place in shown]
        if not is_within and len(shown) < len(figure.places):
            lines.append(f"    and {len(figure.places) - len(shown)} more: --list prints all")
    if not are_within(figures, bounds):
        lines.append(
            "Out of bounds: take something away. A new system raises the bounds of files and lines, as ADR 0020 says."
        )
    return "\n".join(lines)


def are_within(figures: Sequence[Figure], bounds: dict[str, Bound]) -> bool:
    """Return whether every figure is within its bound."""
    return all(bounds[figure.name].admits(figure.value) for figure in figures)


def _format_range(least: float, most: float) -> str:
    return f"{least:g} to {most:g}" if least else f"{most:g}"
