"""Words: how far names, docstrings, comments and documents are from plain technical English. Run by `make words`.

Counted are words that this tree once used in a sense of its own, and names that a reader cannot guess from. Bounds only
fall: whoever removes some lowers the bound.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from checks.bounds import Bound, Figure, are_within, render
from checks.tree import LAYERS, Sources, read_sources

SERVER: Final = "server: flagged words per 1,000"
CLASSES: Final = "server: class names defined more than once"
PARTICIPLES: Final = "server: functions named by a bare participle"
METAPHORS: Final = "server: classes and modules named by a metaphor"
TESTS: Final = "tests and bench: flagged words per 1,000"
CONSOLE: Final = "console sources: flagged words per 1,000"
DOCUMENTS: Final = "documents: flagged words per 1,000"

BOUNDS: Final = {
    SERVER: Bound(most=2.0, target=2.0),
    CLASSES: Bound(most=0, target=0),
    PARTICIPLES: Bound(most=0, target=0),
    METAPHORS: Bound(most=0, target=0),
    TESTS: Bound(most=1.1, target=2.0),
    CONSOLE: Bound(most=0.9, target=2.0),
    DOCUMENTS: Bound(most=0.4, target=2.0),
}


def _parse_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FLAGGED_WORDS: Final = _parse_words(
    """told tell tells heard hear hears stand stands stood wanted whoever nobody somebody anybody ours
    door hand hands house room rooms floor floors story thing things"""
)
FLAGGED_PHRASES: Final = frozenset({("so", "many"), ("so", "long"), ("so", "late")})
ALLOWED_IN_TESTS: Final = frozenset({"ours"})
"""A bench sets ours beside others."""

IRREGULAR_PARTICIPLES: Final = _parse_words(
    """asked begun built done drawn found given gone grown heard held kept known led left lost made meant met paid said
    seen sent shown spent taken told wanted written here"""
)
SPEECH: Final = _parse_words("asked heard said shown told wanted")
"""Participles that say nothing in a longer name either."""
ENDING_IN_ED: Final = _parse_words("embed feed need proceed seed shed speed succeed weed")
"""Words that are no participles."""
PREDICATES: Final = _parse_words("is has was are were")

METAPHOR_WORDS: Final = _parse_words(
    """beat berth berths board consignment desk door floor gathering heights house lot pile press print pushers resting
    room rooms sentences sight story tape together visit voyage wish asked heard shown told wanted"""
)

WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
JAVASCRIPT_TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
    |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'
    |(?<=[(,=:\[!&|?;{}])\s*/(?![*/])(?:[^\\/\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*
    |(?P<name>[A-Za-z_$][\w$]*)""",
    re.VERBOSE | re.DOTALL,
)
NO_PROSE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->|<[^>\n]+>", re.MULTILINE | re.DOTALL)
"""Of a document: code, targets of links, comments and tags."""


def measure_server(sources: Sources) -> list[Figure]:
    """Return the figures of the server's Python sources."""
    prose = {name: "\n".join(iterate_prose(text)) for name, text in sources.items()}
    return [
        _count_flagged(SERVER, prose, allowed=frozenset()),
        _find_repeated_classes(sources),
        _find_participles(sources),
        _find_metaphors(sources),
    ]


def measure_tests(sources: Sources) -> Figure:
    """Return the words of tests and benches; their functions may be named by sentences."""
    prose = {name: "\n".join(iterate_prose(text)) for name, text in sources.items()}
    return _count_flagged(TESTS, prose, allowed=ALLOWED_IN_TESTS)


def measure_console(sources: Sources) -> Figure:
    """Return the words of JavaScript modules: their comments, and the parts of every name that they use."""
    prose = {name: "\n".join(iterate_javascript(text)) for name, text in sources.items()}
    return _count_flagged(CONSOLE, prose, allowed=frozenset())


def measure_documents(sources: Sources) -> Figure:
    """Return the words of Markdown documents without their code."""
    return _count_flagged(
        DOCUMENTS, {name: NO_PROSE.sub(" ", text) for name, text in sources.items()}, allowed=frozenset()
    )


def iterate_prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a Python module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def iterate_javascript(source: str) -> Iterator[str]:
    """Yield the comments of a module and, once each, the names in it, split into words."""
    names = set()
    for token in JAVASCRIPT_TOKEN.finditer(source):
        if token["comment"]:
            yield token["comment"]
        elif token["name"]:
            names.add(token["name"])
    yield from (" ".join(split_name(name)) for name in sorted(names))


def split_name(name: str) -> list[str]:
    """Return the words of a name in lower case, of `snake_case` and of `CamelCase`."""
    return [part.lower() for part in NAME_PART.findall(name)]


def find_flagged(prose: str) -> list[str]:
    """Return the flagged words and phrases of a text; a compound such as `stand-in` is another word."""
    words = [word.lower() for word in WORD.findall(prose)]
    singles = [word for word in words if word in FLAGGED_WORDS]
    return singles + [" ".join(pair) for pair in pairwise(words) if pair in FLAGGED_PHRASES]


def _count_flagged(name: str, prose: Mapping[str, str], *, allowed: frozenset[str]) -> Figure:
    total, per_file = 0, Counter[str]()
    for path, text in prose.items():
        total += len(WORD.findall(text))
        per_file[path] = sum(word not in allowed for word in find_flagged(text))
    worst = [f"{path}: {count}" for path, count in per_file.most_common() if count]
    return Figure(name, round(1000 * per_file.total() / max(total, 1), 1), worst)


def _find_repeated_classes(sources: Sources) -> Figure:
    places = defaultdict(list)
    for path, node in _iterate_definitions(sources):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append(path)
    repeated = sorted(
        ((name, where) for name, where in places.items() if len(where) > 1), key=lambda each: -len(each[1])
    )
    return Figure(CLASSES, len(repeated), [f"{name}: {', '.join(where)}" for name, where in repeated])


def _find_participles(sources: Sources) -> Figure:
    found = [
        f"{path}: {node.name}"
        for path, node in _iterate_definitions(sources)
        if not isinstance(node, ast.ClassDef) and not _is_property(node) and is_participle(node.name)
    ]
    return Figure(PARTICIPLES, len(found), found)


def is_participle(name: str) -> bool:
    """Return whether a function's name is a participle alone, or one of speech among other words."""
    first, *others = split_name(name) or [""]
    if first in PREDICATES:
        return False
    if others:
        return bool(SPEECH & {first, *others})
    return first in IRREGULAR_PARTICIPLES or (first.endswith("ed") and first not in ENDING_IN_ED)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _find_metaphors(sources: Sources) -> Figure:
    modules = [path for path in sources if METAPHOR_WORDS & {*split_name(PurePosixPath(path).stem)}]
    folders = {str(PurePosixPath(path).parent) for path in sources}
    modules += sorted(folder for folder in folders if METAPHOR_WORDS & {*split_name(PurePosixPath(folder).name)})
    classes = [
        f"{path}: {node.name}"
        for path, node in _iterate_definitions(sources)
        if isinstance(node, ast.ClassDef) and METAPHOR_WORDS & {*split_name(node.name)}
    ]
    return Figure(METAPHORS, len(modules) + len(classes), [*modules, *classes])


def _iterate_definitions(
    sources: Sources,
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def main() -> int:
    """Print the figures; return 1 if one is out of bounds."""
    parser = argparse.ArgumentParser(prog="python -m checks.words", description=main.__doc__)
    parser.add_argument("--list", action="store_true", help="print every place that was counted")
    arguments = parser.parse_args()
    figures = [
        *measure_server(read_sources(*LAYERS, "demo", "sims")),
        measure_tests(read_sources("tests", "bench")),
        measure_console(read_sources("api/console", suffix=".js")),
        measure_documents(read_sources("docs", "README.md", "CONTRIBUTING.md", suffix=".md")),
    ]
    print(render(figures, BOUNDS, is_complete=arguments.list))
    return 0 if are_within(figures, BOUNDS) else 1


if __name__ == "__main__":
    sys.exit(main())
