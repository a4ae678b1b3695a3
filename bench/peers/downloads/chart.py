"""The chart of the comparison: reads series as JSON from standard input, writes a PNG to the given path."""

from __future__ import annotations

import json
import sys

from matplotlib.figure import Figure  # type: ignore[import-not-found]  # in the peer's environment alone

PANELS = {"rate": "rows a second", "cpu_us": "CPU µs for a row, own processes", "peak_mb": "peak memory, MB"}
COLOURS = ("#0b6e4f", "#6b7280", "#c2410c", "#7c3aed")


def main(path: str) -> None:
    """One panel for each figure, one line for each contender."""
    series = json.load(sys.stdin)
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for panel, (key, label) in zip(panels, PANELS.items(), strict=True):
        for colour, (name, values) in zip(COLOURS, series.items(), strict=True):
            panel.plot(values["rows"], values[key], marker="o", linewidth=2, color=colour, label=name)
        panel.set(xscale="log", xlabel="rows", title=label)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.suptitle("CSV export, the same source, outputs proved equal")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
