"""The check of words and names, on planted ones."""

from __future__ import annotations

import pytest

from checks import words

PLANTED = '''"""What is told to nobody."""

TOLD = "a text that is told"  # stands here


class Rules:
    """Plain text of five words."""
'''


def find(name: str, sources: dict[str, str]) -> list[str]:
    """The places of one figure of the server."""
    [figure] = [each for each in words.measure_server(sources) if each.name == name]
    assert name == words.SERVER or figure.value == len(figure.places)
    return list(figure.places)


def test_flagged_words_of_docstrings_and_comments_are_counted() -> None:
    """Not those of texts and names: a text may be the user's."""
    [figure, *_] = words.measure_server({"api/a.py": PLANTED, "api/b.py": '"""Plain."""\n'})

    assert figure.places == ["api/a.py: 3"]
    assert figure.value == round(1000 * 3 / 13, 1)


@pytest.mark.parametrize(
    ("text", "flagged"),
    [
        ("Whoever hears of it", ["whoever", "hears"]),
        ("There are so many, so few", ["so many"]),
        ("A stand-in for a platform, a hand-written page", []),
        ("The handle of a doorway, retold", []),
    ],
)
def test_a_flagged_word_is_found_as_a_whole_word(text: str, flagged: list[str]) -> None:
    """A compound is a word of its own."""
    assert words.find_flagged(text) == flagged


def test_a_class_name_that_two_modules_use_is_found() -> None:
    """Private names are the module's own."""
    sources = {
        "api/a.py": "class Wanted: ...\nclass _Row: ...\nclass Alone: ...\n",
        "domain/b.py": "class Wanted: ...\nclass _Row: ...\n",
    }

    assert find(words.CLASSES, sources) == ["Wanted: api/a.py, domain/b.py"]


@pytest.mark.parametrize("name", ["told", "_shown", "rendered", "held", "_told_as_faults", "find_told"])
def test_a_function_named_by_a_participle_is_found(name: str) -> None:
    """It says neither what is done nor to what."""
    assert find(words.PARTICIPLES, {"api/a.py": f"async def {name}() -> None: ...\n"}) == [f"api/a.py: {name}"]


@pytest.mark.parametrize("name", ["feed", "is_asked", "render_rows", "read", "_was_told", "__", "packed_size"])
def test_other_names_of_functions_pass(name: str) -> None:
    """Verbs, predicates, and a participle that has its noun."""
    assert find(words.PARTICIPLES, {"api/a.py": f"def {name}() -> None: ...\n"}) == []


def test_a_property_may_be_a_participle() -> None:
    """`connection.closed` is ordinary."""
    source = "class Connection:\n    @property\n    def closed(self) -> bool: ...\n"

    assert find(words.PARTICIPLES, {"api/a.py": source}) == []


def test_modules_packages_and_classes_named_by_a_metaphor_are_found() -> None:
    """Also within a longer name; a word that only contains it is another word."""
    sources = {
        "api/orders/room.py": "class ShownOrder: ...\n",
        "tests/rooms/a.py": "class PrintJob: ...\nclass Blueprint: ...\nclass Dashboard: ...\n",
    }

    found = find(words.METAPHORS, sources)
    assert found == [
        "api/orders/room.py",
        "tests/rooms",
        "api/orders/room.py: ShownOrder",
        "tests/rooms/a.py: PrintJob",
    ]


def test_names_and_comments_of_scripts_are_counted_and_their_texts_are_not() -> None:
    """Regular expressions and texts may hold anything; a name counts once."""
    source = "// Told by the house.\nconst toldBy = room('nobody', /\"stands/g);\nroom(toldBy); /* door */\n"

    figure = words.measure_console({"api/console/js/a.js": source})

    assert figure.places == ["api/console/js/a.js: 5"]
    assert [each for each in words.iterate_javascript(source) if "stands" in each or "nobody" in each] == []


def test_code_of_documents_is_not_counted() -> None:
    """Neither in blocks, in back quotes, nor in targets of links."""
    document = "It stands.\n\n```sh\ntold nobody\n```\n\n`told` and [a link](rooms/door.md)\n"

    assert words.measure_documents({"docs/a.md": document}).places == ["docs/a.md: 1"]


def test_a_bench_may_say_ours() -> None:
    """It sets ours beside others."""
    figure = words.measure_tests({"bench/a.py": '"""Ours beside theirs, as told."""\n'})

    assert figure.places == ["bench/a.py: 1"]


def test_every_figure_has_a_bound() -> None:
    """Otherwise it would hold nothing."""
    figures = [
        *words.measure_server({}),
        words.measure_tests({}),
        words.measure_console({}),
        words.measure_documents({}),
    ]

    assert {figure.name for figure in figures} == words.BOUNDS.keys()
