"""Rich text: the HTML of a cell as the runs of an inline string."""

from __future__ import annotations

from typing import Final

from domain.downloads.excel import html, safe
from domain.downloads.excel.html import Run
from domain.downloads.excel.style import Style

FONT_SIZE: Final = 11
_FONT = '<rFont val="Calibri"/><family val="2"/><scheme val="minor"/>'


def xml(source: str, style: Style) -> tuple[str, bool]:
    """What stands within the inline string, and whether the text had to be cut to the limits of a cell."""
    runs, cut = html.bounded(html.runs(source))
    if all(run == Run(run.text) for run in runs):
        return _text("".join(run.text for run in runs)), cut
    return "".join(f"<r>{_look(run, style)}{_text(run.text)}</r>" for run in runs), cut


def _text(text: str) -> str:
    return f'<t xml:space="preserve">{safe.xml(text)}</t>'


def _look(run: Run, style: Style) -> str:
    """A run does not inherit the cell's font: it says everything."""
    flags = {"<b/>": run.bold or style.bold, "<i/>": run.italic, "<u/>": run.underline}
    color = run.color or style.color
    shade = f'<color rgb="FF{color}"/>' if color else '<color theme="1"/>'
    size = style.size or FONT_SIZE
    return f'<rPr>{"".join(flag for flag, is_on in flags.items() if is_on)}<sz val="{size:g}"/>{shade}{_FONT}</rPr>'
