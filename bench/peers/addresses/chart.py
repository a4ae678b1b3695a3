"""The chart of the comparison: reads panels as JSON from standard input, writes a PNG to the given path."""

from __future__ import annotations

import json
import sys

from matplotlib.figure import Figure  # type: ignore[import-not-found]  # in the peer's environment alone

OURS, OTHERS = "#0b6e4f", "#6b7280"


def main(path: str) -> None:
    """One panel for each figure, one bar for each contender."""
    panels = json.load(sys.stdin)
    figure = Figure(figsize=(18, 4), layout="constrained")
    for index, (axes, (label, values)) in enumerate(zip(figure.subplots(1, len(panels)), panels.items(), strict=True)):
        names = list(values)[::-1]
        colours = [OURS if name.startswith("ours") else OTHERS for name in names]
        bars = axes.barh(names, [values[name] for name in names], color=colours)
        axes.bar_label(bars, fmt="{:,.3g}", padding=2)
        axes.set_title(label, fontsize=10)
        axes.margins(x=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        if index:
            axes.set_yticks([])
    figure.suptitle("Changes of addresses into four modules: the same messages, the same outcome")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
