"""The site of the documents: every page is in its navigation, and what is made from the code has all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import site, site_pages, wire_names

NAMES = wire_names.PAGE.read_text()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The generated pages."""
    return site_pages.build_pages()


def read_headings(page: str) -> set[str]:
    """Return the names in back quotes that have a section."""
    return set(re.findall(r"^## `(.+)`$", page, re.MULTILINE))


def test_every_code_of_a_problem_has_a_section(pages: dict[str, str]) -> None:
    """Those that the code makes, and those that routes declare."""
    codes = set(re.findall(r"^code (\w+)$", NAMES, re.MULTILINE))
    assert codes <= read_headings(pages["docs/reference/problem-codes.md"])


def test_a_code_says_its_sentence_and_its_routes(pages: dict[str, str]) -> None:
    """So that a reader knows what to do."""
    [section] = re.findall(r"## `day_invalid`\n(.*?)\n## ", pages["docs/reference/problem-codes.md"], re.DOTALL)
    assert "> " in section
    assert "HTTP 422: [`POST /v1/platforms/{platform}/reports`](api-orders.md" in section


def test_every_command_has_a_section(pages: dict[str, str]) -> None:
    """With each of its options."""
    page = pages["docs/reference/command-line.md"]
    commands = re.findall(r"^(haulage [a-z -]+)$", NAMES, re.MULTILINE)
    options = re.findall(r"^haulage [a-z -]+: (\S+)$", NAMES, re.MULTILINE)
    assert len(commands) > 40
    assert set(commands) <= read_headings(page)
    assert {option for option in options if f"`{option}`" not in page} == set()


def test_every_route_has_a_section(pages: dict[str, str]) -> None:
    """On the page of its group."""
    routes = set(re.findall(r"^([A-Z]+ /.*?): \w+$", NAMES, re.MULTILINE))
    assert routes == {name for path, page in pages.items() if "/api-" in path for name in read_headings(page)}


def test_links_between_generated_pages_lead_somewhere(pages: dict[str, str]) -> None:
    """`make docs` checks those of all pages; these are made by code that may change without it."""
    anchors = {
        (Path(path).name, site_pages.to_anchor(heading))
        for path, page in pages.items()
        for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    assert {link for link in list_links(pages) if link[1] and link not in anchors} == set()
    assert {f"docs/reference/{name}" for name, _ in list_links(pages)} <= pages.keys()


def list_links(pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield file and anchor of each link."""
    for path, page in pages.items():
        for name, anchor in re.findall(r"\]\(([\w-]*(?:\.md)?)(?:#([^)]*))?\)", page):
            yield name or Path(path).name, anchor


def test_the_navigation_has_every_page_once() -> None:
    """Under the head of its folder."""
    index = site.build_index({"README.md": "# Haulage", "docs/adr/0001.md": "# One: `x`", "excel/README.md": "# excel"})
    assert re.findall(r"^:caption: Decisions\n:maxdepth: 1\n\nOne: x <docs/adr/0001>$", index, re.MULTILINE)
    assert re.findall(r"^.+ <(.+)>$", index, re.MULTILINE) == ["docs/adr/0001", "README", "excel/README"]
