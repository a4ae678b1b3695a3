"""Rich text: the HTML of a cell as the runs of an inline string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from excel import html, safe
from excel.html import Run
from excel.template.style import Style

FONT_SIZE: Final = 11
_FONT = '<rFont val="Calibri"/><family val="2"/><scheme val="minor"/>'


@dataclass(frozen=True)
class RichCell:
    """A cell of HTML."""

    xml: str
    """What stands within the inline string."""
    text: str
    """What the cell shows."""
    was_cut: bool
    """Whether the text had to be cut to the limits of a cell."""


def spell(source: str, style: Style) -> RichCell:
    """Read HTML for a cell of this style."""
    runs, cut = html.bounded(html.runs(source))
    text = "".join(run.text for run in runs)
    if all(run == Run(run.text) for run in runs):
        return RichCell(_text(text), text, cut)
    return RichCell("".join(f"<r>{_look(run, style)}{_text(run.text)}</r>" for run in runs), text, cut)


def _text(text: str) -> str:
    return f'<t xml:space="preserve">{safe.xml(text)}</t>'


def _look(run: Run, style: Style) -> str:
    """A run does not inherit the cell's font: it says everything."""
    flags = {"<b/>": run.bold or style.bold, "<i/>": run.italic, "<u/>": run.underline}
    color = run.color or style.color
    shade = f'<color rgb="FF{color}"/>' if color else '<color theme="1"/>'
    size = style.size or FONT_SIZE
    return f'<rPr>{"".join(flag for flag, is_on in flags.items() if is_on)}<sz val="{size:g}"/>{shade}{_FONT}</rPr>'
