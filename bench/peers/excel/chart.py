"""The chart of the comparison: reads the writers as JSON from standard input, writes a PNG to the given path."""

from __future__ import annotations

import json
import sys

from matplotlib.figure import Figure  # type: ignore[import-not-found]  # in the peer's environment alone

PANELS = {"rate": "million cells a second", "peak_mb": "peak memory, MB", "file_mb": "file, MB"}
OURS, OTHERS = "#0b6e4f", "#9ca3af"


def main(path: str) -> None:
    """One panel for each figure, one bar for each writer."""
    shown = json.load(sys.stdin)
    names = list(reversed(shown["writers"]))
    colours = [OURS if name.startswith("ours") else OTHERS for name in names]
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for panel, (key, label) in zip(panels, PANELS.items(), strict=True):
        values = [shown["writers"][name][key] for name in names]
        bars = panel.barh(names, values, color=colours)
        panel.bar_label(bars, fmt="{:,.2f}" if key == "rate" else "{:,.0f}", padding=3, fontsize=8)
        panel.set(title=label)
        panel.margins(x=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{shown['rows']:,} rows × 10 mixed columns into one book; every book read back and equal")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
