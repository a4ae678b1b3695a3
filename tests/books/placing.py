"""Places and styles of the parts of one table, as the documents say; for the reference writer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category, east_asian_width

from tests.books import values
from tests.books.cases import COLORS, MEANINGS, Case, Piece, Table, leaves_of

ROW_HEADS = ("__row__", "_row_header", "_row_header_", "_row_head_")
REGIONS = ("col", "ceil", "row")
HEIGHT_MAX = 409
LINE = 15
"""What a line of data takes, in points."""
MERGED_MAX = 20

Look = dict[str, Any]
"""Properties of a format, as xlsxwriter names them."""
Node = dict[str, Any]

CENTRED: Look = {"align": "center", "valign": "vcenter"}
TITLE: Look = CENTRED | {"bold": True, "font_size": 22, "text_wrap": True}
SUMMARY: Look = {"align": "left", "valign": "vcenter", "border": 1, "text_wrap": True}
VALUE: Look = CENTRED | {"border": 1, "text_wrap": True}
NAME: Look = VALUE | {"bold": True}
GREY = "DFDFDF"
HEAD: Look = NAME | {"bg_color": f"#{GREY}"}
VALIGN = {"top": "top", "middle": "vcenter", "bottom": "bottom"}
FORMATS = {"text": values.TEXT_FORMAT, "date": values.DATE_FORMAT, "datetime": values.DATETIME_FORMAT}


@dataclass(frozen=True)
class Font:
    """The height of a line of a region, in points, and the width of its characters relative to those of the data."""

    line: float
    padding: float
    scale: float = 1.0
    margin: float = 2
    widest: float = 60
    """The most characters that columns are widened to for its sake."""

    def height(self, lines: int) -> float:
        """The height of a row with a number of lines."""
        return min(HEIGHT_MAX, max(lines * self.line + self.padding, lines * 15))


TITLES, TEXTS = Font(28, 8, scale=2.1), Font(14, 14, widest=40)
PAIRS, HEADS = Font(14, 8, widest=20), Font(15, 7, scale=1.1, margin=4, widest=30)


@dataclass(frozen=True)
class Box:
    """Some cells that show one text."""

    top: int
    left: int
    bottom: int
    right: int
    pieces: tuple[Piece, ...]
    look: Look
    font: Font

    @property
    def text(self) -> str:
        """What it shows."""
        return "".join(piece.text for piece in self.pieces)


class Placed:
    """One table at its place."""

    def __init__(self, case: Case, table: Table, top: int) -> None:
        self._case, self._table, self._next = case, table, top
        self.boxes: list[Box] = []
        self.row_heads: list[Box] = []
        tree, rows = _trees(table.drawing["template"], table.keys)
        corner = next((node for node in tree if node.get("name") in ROW_HEADS), None) if rows else None
        tree = [node for node in tree if node is not corner]
        self.leaves = leaves_of(tree)
        self.row_depth = _depth(rows)
        self._width = min(MERGED_MAX, self.row_depth + len(self.leaves))
        self._above()
        self.heads_top = self._next
        self.body_top = self.heads_top + _depth(tree)
        if rows:
            title = (corner or {}).get("title", "")
            self._box(self.heads_top, 0, self.body_top - 1, self.row_depth - 1, [Piece(title)], HEAD, HEADS)
        self._column_heads(tree, self.heads_top, self.row_depth)
        self._order: list[list[str] | None] = [] if rows else list(table.rows)
        self._row_heads(rows, 0)
        self.body_end = self._next = self.body_top + len(self._order)
        self._footer_from = len(self.boxes)
        self._region(table.drawing.get("footer"))
        self.end = self._next

    def cells(self) -> Iterator[tuple[int, int, Any, Look]]:
        """The cells of data: row, column, value, look."""
        for row, column, leaf, cell in self._sources():
            kind = leaf.get("type", "auto")
            value = self._value(leaf, cell)
            yield row, column, value, values.look(value, kind, self._look(leaf, value))

    def widths(self, *, footer: bool = True) -> dict[int, float]:
        """Of each column: as asked for, or as wide as the data, and heads and regions wish."""
        fixed = {column: self._get_fixed_width(leaf) for column, leaf in enumerate(self.leaves, start=self.row_depth)}
        found = {column: fixed.get(column) or 8.0 for column in range(self.row_depth + len(self.leaves))}
        for _, column, leaf, cell in self._sources():
            if fixed[column] is None:
                value = self._value(leaf, cell)
                shown = values.render_for_width(value, cell, self._look(leaf, value).get("num_format"))
                wide = _wide(shown) if "\n" not in shown else math.ceil(max(map(_measure_line, shown.split("\n"))))
                found[column] = max(found[column], min(60, wide + 2))
        regions = self.boxes if footer else self.boxes[: self._footer_from]
        boxes = sorted((*regions, *self.row_heads), key=lambda box: box.right - box.left)
        for box in boxes:
            columns = range(box.left, box.right + 1)
            free = [column for column in columns if fixed.get(column) is None]
            wish = min(box.font.widest, _wide(box.text) * box.font.scale + box.font.margin)
            missing = wish - sum(found[column] for column in columns)
            for column in free:
                if missing > 0:
                    found[column] = min(60, found[column] + missing / len(free))
        return found

    def heights(self, widths: Mapping[int, float]) -> dict[int, float]:
        """Of each row that does not have the height of its own."""
        own = [leaf.get("height", self._case.book.get("height")) for leaf in self.leaves]
        asked = max((height for height in own if height is not None), default=None)
        found = dict.fromkeys(range(self.body_top, self.body_end), asked) if asked else {}
        for row, needed in self._body_heights().items():
            if needed > (asked or LINE):
                found[row] = min(HEIGHT_MAX, needed)
        for box in sorted(self.boxes, key=lambda box: box.bottom - box.top):
            rows = range(box.top, box.bottom + 1)
            for row in rows:
                found.setdefault(row, box.font.height(1))
            line_width = max(
                1.0, (sum(widths[column] for column in range(box.left, box.right + 1)) - 1) / box.font.scale
            )
            missing = box.font.height(_broken(box.text, line_width)) - sum(found[row] for row in rows)
            found[box.bottom] = min(HEIGHT_MAX, found[box.bottom] + max(0, missing))
        return found

    def _body_heights(self) -> dict[int, float]:
        """Of each row of data and each row head beside it, so that all its lines are seen."""
        found = dict.fromkeys(range(self.body_top, self.body_end), float(LINE))
        widths = self.widths(footer=False)
        for row, column, value, look in self.cells():
            text = "".join(piece.text for piece in value) if isinstance(value, tuple) else value
            if not isinstance(text, str) or isinstance(value, values.Formula) or not look.get("text_wrap"):
                continue
            leaf = self.leaves[column - self.row_depth]
            bold = leaf.get("type") == "rich" or leaf.get("bold") or any(r.get("bold") for r in leaf["condition_style"])
            line_width = widths[column] / (1.08 if bold else 1)
            found[row] = max(found[row], LINE * sum(_lines(line, line_width) for line in text.split("\n")))
        for box in self.row_heads:
            line_width = max(
                1.0, (sum(widths[column] for column in range(box.left, box.right + 1)) - 1) / box.font.scale
            )
            needed = min(HEIGHT_MAX, LINE * _broken(box.text, line_width))
            each = math.ceil(needed / (box.bottom - box.top + 1) * 4 / 3) * 3 / 4
            for row in range(box.top, box.bottom + 1):
                found[row] = max(found[row], each)
        return found

    def _get_fixed_width(self, leaf: Node) -> float | None:
        """The width that is asked for, if any is."""
        width: float | None = leaf.get("width", self._case.book.get("width"))
        return None if width == -1 else width

    def _sources(self) -> Iterator[tuple[int, int, Node, str]]:
        """The JSON text of every cell of data, and its column."""
        for row, cells in enumerate(self._order, start=self.body_top):
            by_key = dict(zip(self._table.keys, cells or (), strict=False))
            for column, leaf in enumerate(self.leaves, start=self.row_depth):
                yield row, column, leaf, by_key.get(leaf["name"], "null")

    def _value(self, leaf: Node, cell: str) -> Any:
        """What a cell is; of HTML, the pieces that it says."""
        kind = leaf.get("type", "auto")
        if kind == "rich" and cell in self._table.rich:
            return _pieces(self._table.rich[cell])
        return values.read(cell, kind, self._case.zone)

    def _above(self) -> None:
        drawing = self._table.drawing
        if drawing.get("title"):
            self._row([Piece(drawing["title"])], TITLE, TITLES)
        if drawing.get("summary"):
            self._row(self._table.summary, SUMMARY, TEXTS)
        self._region(drawing.get("header"))

    def _region(self, pairs: Any) -> None:
        """A header or footer of pairs: rows as given, or at most four pairs a row, each of two columns or more."""
        if isinstance(pairs, dict):
            most = max(1, min(4, self._width // 2))
            count = -(-len(pairs) // -(-len(pairs) // most))
            rows = _split_into_chunks(list(pairs.items()), count)
            shares = _shares(self._width, count)
            for row in rows:
                self._pairs(row, shares)
        for given in pairs if isinstance(pairs, list) else []:
            for row in _split_into_chunks(list(given.items()), self._width):
                self._pairs(row, _shares(self._width, len(row)))

    def _pairs(self, pairs: Sequence[tuple[str, Any]], shares: Sequence[int]) -> None:
        row, left = self._next, 0
        for (name, value), share in zip(pairs, shares, strict=False):
            shown = "" if value is None else value if isinstance(value, str) else json.dumps(value)
            half = share // 2
            if half:
                self._box(row, left, row, left + half - 1, [Piece(name)], NAME, PAIRS)
                self._box(row, left + half, row, left + share - 1, [Piece(shown)], VALUE, PAIRS)
            else:
                self._box(row, left, row, left, [Piece(f"{name}：", bold=True), Piece(shown)], VALUE, PAIRS)
            left += share
        if left < self._width:
            self._box(row, left, row, self._width - 1, [], VALUE, PAIRS)
        self._next += 1

    def _column_heads(self, nodes: Sequence[Node], row: int, column: int) -> None:
        for node in nodes:
            inner = node.get("children", [])
            last = column + len(leaves_of([node])) - 1
            bottom = row if inner else self.body_top - 1
            self._box(row, column, bottom, last, [Piece(_title(node))], HEAD, HEADS)
            self._column_heads(inner, row + 1, column)
            column = last + 1

    def _row_heads(self, nodes: Sequence[Node], column: int) -> None:
        for node in nodes:
            top, place = self.body_top + len(self._order), len(self.row_heads)
            if inner := node.get("children"):
                self._row_heads(inner, column + 1)
            else:
                mine = [row for row in self._table.rows if json.loads(row[0]) == node["name"]]
                self._order += mine
                self._order += [None] * (node.get("row_count", 1) - len(mine))
            right = column if inner else self.row_depth - 1
            look = HEAD | {"bg_color": _background(node.get("bg_color", True))}
            bottom = self.body_top + len(self._order) - 1
            box = Box(top, column, bottom, right, _pieces([Piece(_title(node))]), look, HEADS)
            self.row_heads.insert(place, box)

    def _look(self, leaf: Node, value: Any) -> Look:
        book = self._case.book
        kind = leaf.get("type", "auto")
        look: Look = {
            "align": leaf.get("align", book.get("align", "center")),
            "valign": VALIGN[leaf.get("v_align", "middle")],
            "border": 1,
        }
        if "format" in leaf or kind in FORMATS:
            look["num_format"] = leaf.get("format", FORMATS.get(kind))
        wraps = leaf.get(
            "wrap", kind == "rich" or (self._get_fixed_width(leaf) is not None and kind in ("auto", "text"))
        )
        if wraps or _has_line_break(value):
            look["text_wrap"] = True
        if isinstance(value, values.Url):
            look |= {"underline": 1, "font_color": "#0563C1"}
        return look | _colors(leaf) | self._conditional(leaf, value)

    def _conditional(self, leaf: Node, value: Any) -> Look:
        asked = str(value).lower() if isinstance(value, bool) else value
        for rule in leaf["condition_style"]:
            if asked not in (None, "") and MEANINGS[rule["condition"]](asked):
                return _colors(rule)
        return {}

    def _row(self, pieces: Sequence[Piece], look: Look, font: Font) -> None:
        self._box(self._next, 0, self._next, self._width - 1, pieces, look, font)
        self._next += 1

    def _box(
        self, top: int, left: int, bottom: int, right: int, pieces: Sequence[Piece], look: Look, font: Font
    ) -> None:
        self.boxes.append(Box(top, left, bottom, right, _pieces(pieces), look, font))


def _trees(template: Any, keys: Sequence[str]) -> tuple[list[Node], list[Node]]:
    """Column heads and row heads of a template of any form."""
    if template is None:
        return [{"name": key} for key in keys], []
    if isinstance(template, list):
        return template, []
    if "col" in template or "ceil" in template:
        return template.get("col") or template["ceil"], template.get("row", [])
    return [{"name": name, "title": title} for name, title in template.items()], []


def _depth(nodes: Sequence[Node]) -> int:
    return max((1 + _depth(node.get("children", [])) for node in nodes), default=0)


def _title(node: Node) -> str:
    title: str = node.get("title") or node["name"]
    return title


def _colors(said: Node) -> Look:
    look: Look = {}
    if "color" in said:
        look["font_color"] = f"#{COLORS[said['color']]}"
    if "bg_color" in said:
        look["bg_color"] = _background(said["bg_color"])
    if "bold" in said:
        look["bold"] = said["bold"]
    return look


def _background(said: Any) -> str:
    return f"#{GREY if said is True else COLORS[said]}"


def _pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Without empty ones, neighbours of one look joined."""
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1] == Piece(found[-1].text, piece.bold, piece.italic, piece.underline, piece.color):
            last = found.pop()
            found.append(Piece(last.text + piece.text, piece.bold, piece.italic, piece.underline, piece.color))
        elif piece.text:
            found.append(piece)
    return tuple(found)


def _split_into_chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _shares(width: int, parts: int) -> list[int]:
    return [width // parts + (place < width % parts) for place in range(parts)]


def _has_line_break(value: Any) -> bool:
    """Whether a cell shows a text of several lines; of a formula only the result is seen."""
    if isinstance(value, tuple):
        return any("\n" in piece.text for piece in value)
    return isinstance(value, str) and not isinstance(value, values.Formula) and "\n" in value


def _broken(text: str, line_width: float) -> int:
    """The lines of a head or region."""
    return sum(max(1, -(-_wide(line) * 100 // int(line_width * 100))) for line in text.split("\n"))


def _lines(line: str, line_width: float) -> int:
    """The lines of a line of data in a cell that wraps."""
    taken = _measure_line(line)
    return 1 if taken <= line_width else math.ceil(taken / max(line_width * 0.7, line_width - 3))


def _measure_line(line: str) -> float:
    """What a line takes of a column on the screen, where capitals and wide characters take more than digits."""
    return sum({2: 21, 1: 12 if character.isupper() else 10, 0: 0}[_wide(character)] for character in line) / 10


def _wide(text: str) -> int:
    """In characters, those of Chinese, Japanese and Korean counting two."""

    def one(character: str) -> int:
        if character.isascii():
            return 1
        if category(character) in ("Mn", "Me", "Cf"):
            return 0
        kind = east_asian_width(character)
        return 2 if kind in "WF" or (kind == "A" and character >= "\u2000") else 1

    return max(sum(map(one, line)) for line in text.split("\n"))
