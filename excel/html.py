"""HTML: the subset of it that a cell can show, parsed into runs of text and encoded as rich text. Parsing never fails.

Shown are b, strong, i, em, u, font with a colour, span with a style, br, p, div, lists, headings and entities. Other
elements of HTML leave their text, scripts and styles leave nothing, and what looks like a tag but is none
(`a < b`, `List<String>`) stays as it is written. A text without any element keeps its line feeds and spaces; with
elements white space is what it is in HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from excel.template.models import NAMED_COLORS, CellStyle
from excel.texts import escape_xml, replace_control_characters, replace_invalid_characters, truncate_to_cell

TAG_MAX_CHARACTERS: Final = 2_000
NESTING_MAX: Final = 100

_COLORS = NAMED_COLORS | {
    "lime": "00FF00",
    "aqua": "00FFFF",
    "magenta": "FF00FF",
    "fuchsia": "FF00FF",
    "maroon": "800000",
    "olive": "808000",
    "navy": "000080",
    "purple": "800080",
    "teal": "008080",
    "silver": "C0C0C0",
    "gray": "808080",
    "grey": "808080",
    "orange": "FFA500",
    "brown": "A52A2A",
    "pink": "FFC0CB",
}
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_LISTS = frozenset({"ul", "ol"})
_BLOCKS = _HEADINGS | _LISTS | {
    *("p", "div", "li", "dl", "dt", "dd", "table", "tr", "blockquote", "pre", "section", "article", "header", "footer"),
    *("address", "aside", "main", "nav", "center", "hr", "figure", "figcaption", "form", "fieldset"),
}  # fmt: skip
_INLINE = frozenset({
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "body", "cite", "code", "del", "dfn", "em", "font", "i"),
    *("img", "input", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sup"),
    *("html", "sub", "caption", "colgroup", "col", "link", "meta", "tbody", "td", "tfoot", "th", "thead", "time", "tt"),
    *("u", "var"),
})  # fmt: skip
_HIDDEN = frozenset({"script", "style", "head", "title", "template", "noscript", "iframe", "object", "textarea"})
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "col"})
_KNOWN = _BLOCKS | _INLINE | _HIDDEN | {"br"}

# Possessive, so that no text, however odd, is gone over twice.
_TAG = re.compile(r"""<(/?)([A-Za-z][A-Za-z0-9]*+)((?:[\s/](?:[^<>"']|"[^"]*+"|'[^']*+')*+)?+)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z-]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9A-Fa-f]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_HEX = re.compile(r"#?([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})")
_RGB = re.compile(r"rgba?\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*(?:,[^)]*)?\)")


@dataclass(frozen=True)
class TextRun:
    """A piece of text of one font; the colour is six hexadecimal digits."""

    text: str
    bold: bool = False
    italic: bool = False
    underline: bool = False
    color: str | None = None


def parse_html(text: str) -> list[TextRun]:
    """Return the runs of a text of HTML, none of them empty, without characters that XML cannot hold."""
    reader = _HtmlTextRunCollector()
    position = 0
    marked = False
    for start, end, closing, name, attributes in _iterate_tags(text):
        marked = True
        reader.read_text(text[position:start])
        reader.read_tag(name, attributes, closing=closing)
        position = end
    if not marked:
        plain = replace_invalid_characters(_decode_entities(text))
        return [TextRun(plain)] if plain else []
    reader.read_text(text[position:])
    return reader.list_runs_without_trailing_line_feeds()


def truncate_runs(pieces: Sequence[TextRun]) -> tuple[list[TextRun], bool]:
    """Cut the runs to what a cell can hold; return them and whether anything was changed."""
    whole = "".join(piece.text for piece in pieces)
    kept, changed = truncate_to_cell(whole)
    if not changed:
        return list(pieces), False
    found, start = [], 0
    for piece in pieces:
        text = kept[start : start + len(piece.text)]
        start += len(piece.text)
        if text:
            found.append(replace(piece, text=text))
    return found, True


def _iterate_tags(text: str) -> Iterator[tuple[int, int, bool, str, str]]:
    """Yield every element's tag: start, end, whether it closes, name and attributes.

    Comments, declarations and what is within unshown elements come as one tag without a name.
    """
    last_comment_end = text.rfind("-->")
    position = text.find("<")
    while position >= 0:
        end = _find_end_of_hidden_element(text, position, last_comment_end)
        if end is not None:
            yield position, end, False, "", ""
        elif found := _TAG.match(text, position, position + TAG_MAX_CHARACTERS):
            name = found[2].lower()
            if name in _KNOWN:
                end = found.end()
                yield position, end, bool(found[1]), name, found[3]
        position = text.find("<", end or position + 1)


def _find_end_of_hidden_element(text: str, position: int, last_comment_end: int) -> int | None:
    """Return the end of the hidden element or comment that begins here; None if what begins here is shown."""
    if text.startswith("<!--", position):
        return text.find("-->", position + 4) + 3 if position + 4 <= last_comment_end else None
    found = _TAG.match(text, position, position + TAG_MAX_CHARACTERS)
    if found is None or found[1] or found[2].lower() not in _HIDDEN:
        return None
    closing = re.compile(rf"</{found[2].lower()}\s*>", re.IGNORECASE).search(text, found.end())
    return len(text) if closing is None else closing.end()


def _decode_entities(text: str) -> str:
    """Decode entities, and replace control characters, which HTML has no use for."""
    decoded = _ENTITY.sub(lambda found: html.unescape(found[0]), text).replace("\r\n", "\n").replace("\r", "\n")
    return replace_control_characters(decoded)


class _HtmlTextRunCollector:
    """Collects runs while a text is read from left to right."""

    def __init__(self) -> None:
        self._pieces: list[tuple[TextRun, list[str]]] = []
        self._open: list[tuple[str, TextRun]] = []
        self._lists: list[int | None] = []
        self._look = TextRun("")
        self._line_begins = True
        self._item_begins = False
        self._space = False

    def read_text(self, text: str) -> None:
        """Read the text between two tags: white space is one space, and none where a line begins or ends."""
        for index, part in enumerate(_SPACES.split(text)):
            if index:
                self._space = not (self._line_begins or self._item_begins)
            if decoded := _decode_entities(part):
                self._append_text(" " + decoded if self._space else decoded)
                self._space = False

    def read_tag(self, name: str, attributes: str, *, closing: bool) -> None:
        """Read a tag, which changes the font or begins a line."""
        if name == "br" or (name in _BLOCKS and self._begins_line(closing=closing)):
            self._append_text("\n")
            self._line_begins, self._space = True, False
        if name in {"td", "th"} and not closing:
            self._space = not self._line_begins
        if closing:
            self._close_element(name)
        elif name and name not in _VOID and len(self._open) < NESTING_MAX:
            self._open_element(name, attributes)

    def list_runs_without_trailing_line_feeds(self) -> list[TextRun]:
        """Return all runs, without line feeds at the end."""
        found = [replace(look, text=replace_invalid_characters("".join(texts))) for look, texts in self._pieces]
        while found and not found[-1].text.rstrip("\n"):
            found.pop()
        if found:
            found[-1] = replace(found[-1], text=found[-1].text.rstrip("\n"))
        return found

    def _begins_line(self, *, closing: bool) -> bool:
        """Return whether a block begins a line here; one that opens right behind a bullet does not."""
        return not self._line_begins and (closing or not self._item_begins)

    def _open_element(self, name: str, attributes: str) -> None:
        self._open.append((name, self._look))
        self._look = _compute_font_within_element(self._look, name, attributes)
        if name in _LISTS:
            self._lists.append(0 if name == "ol" else None)
        elif name == "li":
            self._add_bullet()

    def _close_element(self, name: str) -> None:
        names = [opened for opened, _ in self._open]
        if name not in names:
            return
        place = len(names) - 1 - names[::-1].index(name)
        self._look = self._open[place][1]
        for opened, _ in self._open[place:]:
            if opened in _LISTS:
                self._lists.pop()
        del self._open[place:]

    def _add_bullet(self) -> None:
        number = self._lists[-1] if self._lists else None
        mark = "• "
        if number is not None:
            self._lists[-1] = number + 1
            mark = f"{number + 1}. "
        self._append_text("  " * (len(self._lists) - 1) + mark)
        self._item_begins = True

    def _append_text(self, text: str) -> None:
        self._line_begins = self._item_begins = False
        if not self._pieces or self._pieces[-1][0] != self._look:
            self._pieces.append((self._look, []))
        self._pieces[-1][1].append(text)


def _compute_font_within_element(look: TextRun, name: str, attributes: str) -> TextRun:
    """Return the font within an element."""
    values = {found[1].lower(): found[2].strip("\"'") for found in _ATTRIBUTE.finditer(attributes)}
    styles = dict(_parse_css_declarations(values.get("style", "")))
    if name in {"b", "strong", "th"} | _HEADINGS or styles.get("font-weight") in {
        "bold",
        "bolder",
        "700",
        "800",
        "900",
    }:
        look = replace(look, bold=True)
    if name in {"i", "em"} or styles.get("font-style") in {"italic", "oblique"}:
        look = replace(look, italic=True)
    if name in {"u", "ins"} or "underline" in styles.get("text-decoration", ""):
        look = replace(look, underline=True)
    named = styles.get("color") or (values.get("color") if name == "font" else None)
    return replace(look, color=_parse_color(html.unescape(named)) or look.color) if named else look


def _parse_css_declarations(style: str) -> Iterator[tuple[str, str]]:
    for declaration in html.unescape(style).lower().split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            yield name.strip(), value.removesuffix("!important").strip()


def _parse_color(named: str) -> str | None:
    value = named.strip().lower()
    if value in _COLORS:
        return _COLORS[value]
    if found := _HEX.fullmatch(value):
        digits = found[1].upper()
        return digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    if found := _RGB.fullmatch(value):
        return "".join(f"{min(255, int(part)):02X}" for part in found.groups())
    return None


FONT_SIZE: Final = 11
_FONT = '<rFont val="Calibri"/><family val="2"/><scheme val="minor"/>'


@dataclass(frozen=True)
class EncodedHtmlCell:
    """A cell of HTML."""

    xml: str
    """The content of the inline string."""
    text: str
    """The text that the cell shows."""
    was_cut: bool
    """Whether the text was cut to the limits of a cell."""


def encode_html_cell(source: str, style: CellStyle) -> EncodedHtmlCell:
    """Encode HTML for a cell of this style."""
    runs, cut = truncate_runs(parse_html(source))
    text = "".join(run.text for run in runs)
    if all(run == TextRun(run.text) for run in runs):
        return EncodedHtmlCell(_encode_text(text), text, cut)
    return EncodedHtmlCell(
        "".join(f"<r>{_encode_font(run, style)}{_encode_text(run.text)}</r>" for run in runs), text, cut
    )


def _encode_text(text: str) -> str:
    return f'<t xml:space="preserve">{escape_xml(text)}</t>'


def _encode_font(run: TextRun, style: CellStyle) -> str:
    """Return the font of a run in full, as it does not inherit the cell's."""
    flags = {"<b/>": run.bold or style.bold, "<i/>": run.italic, "<u/>": run.underline}
    color = run.color or style.color
    shade = f'<color rgb="FF{color}"/>' if color else '<color theme="1"/>'
    size = style.size or FONT_SIZE
    return f'<rPr>{"".join(flag for flag, is_on in flags.items() if is_on)}<sz val="{size:g}"/>{shade}{_FONT}</rPr>'
