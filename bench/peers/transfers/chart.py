"""The chart of the comparison: reads panels as JSON from standard input, writes a PNG to the given path."""

from __future__ import annotations

import json
import sys

from matplotlib.figure import Figure  # type: ignore[import-not-found]  # in the peer's environment alone

COLOURS = ("#0b6e4f", "#6b7280")


def main(path: str) -> None:
    """One panel for each figure, one bar for each contender."""
    panels = json.load(sys.stdin)
    figure = Figure(figsize=(15, 3.8), layout="constrained")
    for axes, (label, values) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        bars = axes.bar(list(values), list(values.values()), color=COLOURS[: len(values)])
        axes.bar_label(bars, fmt="{:,.3g}")
        axes.set_title(label, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("One file to many hosts: joins in one window, the same GSE")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
