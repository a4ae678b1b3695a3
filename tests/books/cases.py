"""Random books to draw: templates, regions and data, each value with the JSON text that a source would send."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pydantic import JsonValue

ROW_KEY = "_row_head_"
SPELLED = {"v-align": "v_align"}
ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kolkata")
COLORS = {"red": "FF0000", "green": "008000", "1F77B4": "1F77B4", "#ff7f0e": "FF7F0E", "cyan": "00FFFF"}
WORDS = (
    *(
        "油站",
        "钓鱼岛",
        "操作员",
        "Berlin",
        "São Paulo",
        "=1+1",
        "-5",
        "http://example.com/a?b=1",
        " two  spaces ",
        "東京",
    ),
    *("007", "two\nlines", "three\r\nmore\nLINES", "第一行\n" + "很长的第二行" * 8, "words that go on " * 6),
    *("a & b < c", "_x0041_", "🚚 lorry", "'quoted'", "@sum", "tab\there", "bell\x07"),
)

Row = list[str]


@dataclass(frozen=True)
class Piece:
    """A piece of a text of HTML, all in one look."""

    text: str
    bold: bool = False
    italic: bool = False
    underline: bool = False
    color: str | None = None


@dataclass(frozen=True)
class Table:
    """One table: what is asked for, and the rows as they are staged."""

    drawing: dict[str, Any]
    keys: list[str]
    rows: list[Row]
    summary: list[Piece] = field(default_factory=list)
    """What the HTML of the summary says."""
    rich: dict[str, list[Piece]] = field(default_factory=dict)
    """What cells of HTML say."""


@dataclass(frozen=True)
class Case:
    """One book."""

    tables: list[Table]
    book: dict[str, Any]
    """Defaults and switches of the book."""
    zone: str


@dataclass(frozen=True)
class Condition:
    """A condition as it is written, and what it means for a cell that is a number or a text."""

    text: str
    holds: Callable[[Any], bool]


CONDITIONS = (
    Condition(">=0 or <=-10", lambda cell: _number(cell) and (cell >= 0 or cell <= -10)),
    Condition("< 0", lambda cell: _number(cell) and cell < 0),
    Condition("!= 3", lambda cell: cell != 3),
    Condition("not (> 2 and < 50)", lambda cell: not (_number(cell) and 2 < cell < 50)),
    Condition("in (1, 2, 'Berlin')", lambda cell: cell in (1, 2, "Berlin")),
    Condition("like '%o%'", lambda cell: isinstance(cell, str) and "o" in cell),
    Condition("= '东京' or = \"Berlin\"", lambda cell: cell in ("东京", "Berlin")),
)
MEANINGS = {condition.text: condition.holds for condition in CONDITIONS}


def case(seed: int, first_year: int = 1950) -> Case:
    """The same book for the same seed; moments are of this year or later."""
    chance = Random(seed)
    several = chance.random() < 0.25
    tables = [_table(chance, number, first_year) for number in range(chance.randint(2, 3) if several else 1)]
    book = {
        "multi": chance.choice(["page", "tab"]),
        "freeze": chance.random() < 0.7,
        "filter": chance.random() < 0.7,
        **_some(chance, 0.3, width=chance.choice([8, 14.5, 30])),
        **_some(chance, 0.2, height=chance.choice([18, 33.5])),
        **_some(chance, 0.3, align=chance.choice(["left", "right"])),
    }
    return Case(tables, book, chance.choice(ZONES))


def _table(chance: Random, number: int, first_year: int) -> Table:
    template, leaves, row_names = _template(chance)
    keys = list(dict.fromkeys(leaf["name"] for leaf in leaves))
    if template is None or chance.random() < 0.3:
        keys.append("spare")
    chance.shuffle(keys)
    kinds = {leaf["name"]: leaf for leaf in leaves}
    dull = {leaf["name"] for leaf in leaves if leaf.get("condition_style")}
    rich = {json.dumps(_html(chance, pieces)): pieces for pieces in (_pieces(chance) for _ in range(3))}
    rows = [
        [_cell(chance, kinds.get(key, {}), first_year, [*rich], dull=key in dull) for key in keys]
        for _ in range(chance.randint(0, 12))
    ]
    if row_names:
        keys.insert(0, ROW_KEY)
        rows = [[json.dumps(chance.choice(row_names), ensure_ascii=False), *row] for row in rows]
    if len(keys) > 2 and chance.random() < 0.15:
        # A column that the source does not have.
        keys, rows = keys[:-1], [row[:-1] for row in rows]
    drawing: dict[str, Any] = {"template": template, "sheet": None}
    drawing |= _some(chance, 0.6, title=chance.choice(["加油明细", "Report", "=A1", "a\nb", "_x0041_ & <b>"]))
    drawing |= _some(chance, 0.5, header=_pairs(chance))
    drawing |= _some(chance, 0.4, footer=_pairs(chance))
    pieces = _pieces(chance) if chance.random() < 0.5 else []
    if pieces:
        drawing["summary"] = _html(chance, pieces)
    if chance.random() < 0.3:
        drawing["sheet"] = f"第{number}页"
    return Table(drawing, keys, rows, pieces, rich)


def _template(chance: Random) -> tuple[Any, list[dict[str, Any]], list[str]]:
    """The template, its leaves with what they inherit, and the names of its row heads."""
    form = chance.choice(["none", "map", "list", "list", "rows", "rows", "columns"])
    if form == "none":
        leaves = [{"name": f"列{n}" if n % 2 else f"key_{n}"} for n in range(chance.randint(1, 6))]
        return None, leaves, []
    if form == "map":
        titles = {f"k{n}": chance.choice(["姓名", "Amount", "日期"]) for n in range(chance.randint(1, 25))}
        return dict(titles), [{"name": name} for name in titles], []
    nodes = _nodes(chance, 1, iter(range(100)))
    leaves = list(leaves_of(nodes))
    if form == "list":
        return nodes, leaves, []
    word = chance.choice(["col", "ceil"])
    if form == "columns":
        return {word: nodes}, leaves, []
    rows, names = _row_nodes(chance, 1, iter(range(100)))
    if chance.random() < 0.5:
        corner = {"name": chance.choice(["__row__", "_row_header", "_row_header_", "_row_head_"])}
        corner |= _some(chance, 0.6, title="项目")
        nodes.insert(chance.randint(0, len(nodes)), corner)
    return {word: nodes, "row": rows}, leaves, names


def leaves_of(nodes: Sequence[dict[str, Any]], inherited: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The columns from left to right, each with all that its groups say and it does not."""
    found = []
    for node in nodes:
        said = {
            SPELLED.get(key, key): value for key, value in node.items() if key not in ("children", "condition_style")
        }
        own = (inherited or {}) | said
        own["condition_style"] = [*node.get("condition_style", []), *(inherited or {}).get("condition_style", [])]
        if node.get("children"):
            passed = {key: value for key, value in own.items() if key not in ("name", "title")}
            found += leaves_of(node["children"], passed)
        else:
            found.append(own)
    return found


def _nodes(chance: Random, level: int, numbers: Any) -> list[dict[str, Any]]:
    nodes = []
    for _ in range(chance.randint(1, 4 if level == 1 else 3)):
        node: dict[str, Any] = {"name": f"k{next(numbers)}"}
        node |= _some(chance, 0.8, title=chance.choice(["充值", "退款笔数", "Amount", "来源方式", ""]))
        node |= _look(chance)
        if level < 4 and chance.random() < 0.35:
            node |= {"name": "_", "title": node.get("title") or "其中"}
            node["children"] = _nodes(chance, level + 1, numbers)
        else:
            node |= _kind(chance)
        nodes.append(node)
    return nodes


def _look(chance: Random) -> dict[str, Any]:
    look = {
        **_some(chance, 0.2, width=chance.choice([9, 12.25, 40, -1])),
        **_some(chance, 0.2, wrap=chance.random() < 0.7),
        **_some(chance, 0.1, height=chance.choice([20, 41.25])),
        **_some(chance, 0.2, align=chance.choice(["left", "center", "right"])),
        **_some(chance, 0.2, color=chance.choice([*COLORS])),
        **_some(chance, 0.2, bold=chance.random() < 0.8),
        **_some(chance, 0.2, bg_color=chance.choice([True, *COLORS])),
    }
    look |= _some(chance, 0.2, **{chance.choice(["v-align", "v_align"]): chance.choice(["top", "middle", "bottom"])})
    if chance.random() < 0.2:
        look["condition_style"] = [
            {"condition": chance.choice(CONDITIONS).text, "color": chance.choice([*COLORS])}
            | _some(chance, 0.5, bold=chance.random() < 0.5)
            | _some(chance, 0.5, bg_color=chance.choice([True, *COLORS]))
            for _ in range(chance.randint(1, 2))
        ]
    return look


def _kind(chance: Random) -> dict[str, Any]:
    return chance.choice(
        [
            {},
            {},
            {"type": "text"},
            {"type": "number"},
            {"type": "number", "format": "#,##0.00"},
            {"type": "date"},
            {"type": "datetime", "format": "yyyy/m/d hh:mm"},
            {"type": "boolean"},
            {"type": "link"},
            {"type": "formula"},
            {"type": "rich"},
        ]
    )


def _row_nodes(chance: Random, level: int, numbers: Any) -> tuple[list[dict[str, Any]], list[str]]:
    nodes, names = [], []
    for _ in range(chance.randint(1, 3)):
        node: dict[str, Any] = {"title": chance.choice(["华东", "华南", "North", "South\nand\nWest"])}
        node |= _some(chance, 0.3, bg_color=chance.choice([True, *COLORS]))
        if level < 3 and chance.random() < 0.35:
            node["children"], inner = _row_nodes(chance, level + 1, numbers)
            names += inner
        else:
            node["name"] = f"r{next(numbers)}"
            node |= _some(chance, 0.5, row_count=chance.randint(1, 4))
            names.append(node["name"])
        nodes.append(node)
    return nodes, names


def _cell(chance: Random, leaf: dict[str, Any], first_year: int, rich: list[str], *, dull: bool) -> str:
    """The JSON text of a cell; a dull one leaves no doubt for a condition whether it is a number or a text."""
    if chance.random() < 0.15:
        return "null"
    numbers = ["0", "3", "1", "-12", "2.50", "1234567.89", "-0.005", "1e3", "99.90"]
    texts = [json.dumps(chance.choice(WORDS), ensure_ascii=chance.random() < 0.3) for _ in range(2)]
    if dull:
        return chance.choice([*numbers, *texts, '"Berlin"'])
    long = ["1234567890123456", "-900719925474099301", "123456789012345", "0.1234567890123456", "1000000000000000"]
    moments = [f'"{_moment(chance, first_year)}{zone}"' for zone in ("Z", "+08:00", "-05:30")]
    days = [f'"{_moment(chance, first_year)}"', '"2024-02-29"', '"1899-12-31"', '"1900-03-01"', '"2024-02-30"']
    match leaf.get("type"):
        case "number":
            return chance.choice([*numbers, *long, *texts, '"12.50"', '"-3"', '"12345678901234567"', '"1,5"'])
        case "date" | "datetime":
            return chance.choice([*moments, *days, *texts, '"2024-02-29 23:59:59"'])
        case "boolean":
            return chance.choice(["true", "false", *texts])
        case "link":
            return chance.choice(
                ['"https://example.com/orders?a=1&b=%20x#y"', '"mailto:a@example.com"', *texts, *numbers]
            )
        case "formula":
            return chance.choice(['"=SUM(A1:A2)*2"', '"=1<2"', *texts, *numbers])
        case "rich":
            return chance.choice([*rich, *texts, *numbers])
        case _:
            return chance.choice([*numbers, *long, *texts, *moments, *days, "true", "false", '{"a":[1,2.50]}', '""'])


def _moment(chance: Random, first_year: int) -> str:
    day = f"{chance.randint(first_year, 2080)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    return f"{day}T{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:{chance.randint(0, 59):02}"


def _pairs(chance: Random) -> JsonValue:
    """One object, or rows of objects."""
    names = [f"{chance.choice(['油站', '日期', 'Operator'])}{number}" for number in range(chance.randint(1, 7))]
    pairs: dict[str, JsonValue] = {name: chance.choice(["钓鱼岛", "4月3日", "", "=x", 12, None]) for name in names}
    if chance.random() < 0.5:
        return pairs
    cut = chance.randint(0, len(names))
    return [{name: pairs[name] for name in part} for part in (names[:cut], names[cut:]) if part]


def _pieces(chance: Random) -> list[Piece]:
    return [
        Piece(
            chance.choice(["说明 ", "Note: ", "a & b", "line\nbreak", "重要"]) + str(number),
            bold=chance.random() < 0.4,
            italic=chance.random() < 0.3,
            underline=chance.random() < 0.2,
            color=chance.choice([None, None, *COLORS.values()]),
        )
        for number in range(chance.randint(1, 4))
    ]


def _html(chance: Random, pieces: Sequence[Piece]) -> str:
    """Pieces as HTML, written in one of the possible ways, with at least one element."""
    found = []
    for piece in pieces:
        text = piece.text.replace("&", "&amp;").replace("\n", chance.choice(["<br>", "<br/>", "<BR />"]))
        for is_set, tags in ((piece.bold, ["b", "strong"]), (piece.italic, ["i", "em"]), (piece.underline, ["u"])):
            if is_set:
                tag = chance.choice(tags)
                text = f"<{tag}>{text}</{tag}>"
        if piece.color:
            opened, closed = chance.choice([('font color="#{}"', "font"), ('span style="color: #{}"', "span")])
            text = f"<{opened.format(piece.color)}>{text}</{closed}>"
        found.append(text)
    return f"<span>{''.join(found)}</span>"


def _number(cell: object) -> bool:
    return isinstance(cell, float | int) and not isinstance(cell, bool)


def _some(chance: Random, share: float, **values: Any) -> dict[str, Any]:
    return values if chance.random() < share else {}
