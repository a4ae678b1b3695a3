"""How SQL is written, by what a statement takes part in: docs/adr/0019-hand-written-or-a-library.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from checks.tree import read_sources

SOURCES = {name: ast.parse(text) for name, text in read_sources("stores").items() if "/migrations/" not in name}


def test_a_statement_as_text_that_is_alone_goes_to_the_driver() -> None:
    """A session costs it three times as much, and gives it nothing."""
    found = [f"{name}: {line}" for name, tree in SOURCES.items() for line in find_lone_texts(tree)]

    assert found == []


def test_a_lone_text_is_found() -> None:
    """Beside one that shares its transaction, and one of expressions."""
    source = """
ONE = text("SELECT 1")
async def load(database):
    async with database.session() as session:
        return (await session.execute(ONE, {})).one()
async def save(database):
    async with database.session() as session:
        await session.execute(ONE)
        await session.execute(ONE)
async def find(database):
    async with database.session() as session:
        return await session.execute(select(Row))
"""
    assert list(find_lone_texts(ast.parse(source))) == ["load"]


def find_lone_texts(tree: ast.Module) -> Iterator[str]:
    """Yield the functions that open a session for one statement, which is a text of their module."""
    texts = {
        target.id
        for each in tree.body
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value and "text(" in ast.unparse(each.value)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef) or "database.session()" not in ast.unparse(function):
            continue
        awaited = [each.value for each in ast.walk(function) if isinstance(each, ast.Await)]
        calls = [each for each in awaited if isinstance(each, ast.Call)]
        first = calls[0].args[0] if len(calls) == len(awaited) == 1 and calls[0].args else None
        if isinstance(first, ast.Name) and (first.id in texts or is_text_parameter(function, first.id)):
            yield function.name


def is_text_parameter(function: ast.AsyncFunctionDef, name: str) -> bool:
    """Whether a function is given the text that it runs."""
    given = {each.arg: each.annotation for each in function.args.args}
    annotation = given.get(name)
    return annotation is not None and ast.unparse(annotation) == "TextClause"
