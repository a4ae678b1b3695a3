"""Both tables of `docs/how-to/operate.md` as Markdown: what an operator can do, and what can stand still."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.support.operations import OPERATIONS
from tests.support.operations.cells import Cell, Command, Console, NotOffered, Operation, Route
from tests.support.operations.standstills import OVERVIEW_LINES, STANDSTILLS, ConsolePage

PAGE: Final = Path(__file__).parents[3] / "docs/how-to/operate.md"
BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"


def render_tables() -> str:
    """Return both tables as Markdown."""
    lines = [
        "Every action is in the [audit log](../reference/callers.md): which key, when, and where the request names it,",
        "`who` and why. What has no command of its own is asked for by `haulage ask --method POST PATH`. A route that",
        "works on one project is asked for this machine's own, or for that of `--project ID`.",
        "",
        "| object | action | one | a list | by a filter | dry run | console | command line |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in OPERATIONS.items():
        for action, operation in row.items():
            if isinstance(operation, Operation):
                cells = (
                    operation.one,
                    operation.many,
                    operation.filtered,
                    operation.dry_run,
                    operation.console,
                    operation.command,
                )
                lines.append(f"| {name} | {action} | {' | '.join(map(_render_cell, cells))} |")
    lines += ["", "What there is not, and why:", "", "| object | | |", "|---|---|---|"]
    for name, row in OPERATIONS.items():
        reasons: dict[str, list[str]] = {}
        for action, operation in row.items():
            if isinstance(operation, NotOffered):
                reasons.setdefault(operation.reason, []).append(action)
        lines += [f"| {name} | {', '.join(actions)} | {reason} |" for reason, actions in reasons.items()]
    lines += [
        "",
        "### What can stand still",
        "",
        "The overview's line is the concern of `GET /v1/overview` that it shows, with causes and the way there.",
        "",
        "| what | metric | alert | overview's line | page | action |",
        "|---|---|---|---|---|---|",
    ]
    for standstill in STANDSTILLS:
        alert = (
            f"[{standstill.alert}](#{standstill.alert.lower()})"
            if isinstance(standstill.alert, str)
            else standstill.alert.reason
        )
        metric = f"`{standstill.metric}`" if isinstance(standstill.metric, str) else standstill.metric.reason
        line = OVERVIEW_LINES[standstill.subject]
        shown = line.reason if isinstance(line, NotOffered) else f"`{line}`"
        page = f"`{standstill.page.path}`" if isinstance(standstill.page, ConsolePage) else standstill.page.reason
        lines.append(
            f"| {standstill.subject} | {metric} | {alert} | {shown} | {page} | {_render_cell(standstill.action)} |"
        )
    return "\n".join(lines)


def _render_cell(cell: Cell) -> str:
    match cell:
        case NotOffered():
            return cell.reason
        case Route():
            fields = f" ({', '.join(f'`{each}`' for each in cell.fields)})" if cell.fields else ""
            return f"`{cell.name}`{fields}"
        case Console():
            return "its question says what will be done" if cell.shows_first else "yes"
        case Command():
            return f"`{' '.join(('haulage', cell.name, *cell.options))}`"


def read_tables() -> str:
    """Return the tables as the page has them."""
    found = re.search(f"{BEGIN}\n(.*)\n{END}", PAGE.read_text(), re.DOTALL)
    return found[1] if found else ""


def write_page() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{render_tables()}\n{END}{tail}")
