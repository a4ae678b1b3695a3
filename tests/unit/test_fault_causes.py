"""The filters for causes know every code that a download or a slice can fail with, and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from api.downloads.queries import DownloadsQuery
from api.http import validation
from domain.downloads.models import DownloadCause
from domain.orders.slices import SliceCause

ROOT = Path(__file__).parents[2]
OF_DOWNLOADS = (
    *("activities/downloads", "domain/downloads", "workflows/downloads", "domain/egress.py"),
    *("clients/sources.py", "clients/http", "workflows/activity_calls.py", "api/downloads/responses.py"),
)
OF_SLICES = ("activities/orders/slice_attempts.py", "workflows/orders/slice.py", "domain/orders/slices.py")
OF_BACKFILLS = {"backfill_ended"}


def list_codes(*places: str) -> set[str]:
    """The codes of the faults that are written in these modules."""
    files = [file for place in places for file in (ROOT / place).rglob("*.py")]
    files += [ROOT / place for place in places if place.endswith(".py")]
    return {code for file in files for code in find_codes(ast.parse(file.read_text()))}


def find_codes(tree: ast.AST) -> Iterator[str]:
    """Yield the codes of the faults that a module builds, and those of tables and constants of codes."""
    for node in ast.walk(tree):
        written: list[ast.expr] = []
        match node:
            case ast.Call(func=ast.Name(id=name)) if name.endswith("Fault") or name in ("FaultRecord", "Invalid"):
                written = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "code")]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(values=values)) if name.endswith("_CODES"):
                written = values
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name.endswith("_CODE"):
                written = [value]
            case ast.Assign(value=ast.Call(func=ast.Name(id="next"), args=[_, default])):
                written = [default]
        yield from (each.value for each in written if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_the_filter_of_downloads_knows_every_cause() -> None:
    """A code that is missing could not be filtered by; one too many would match nothing."""
    assert list_codes(*OF_DOWNLOADS) == set(get_args(DownloadCause))


def test_the_filter_of_slices_knows_every_cause() -> None:
    """The same of orders."""
    assert list_codes(*OF_SLICES) - OF_BACKFILLS == set(get_args(SliceCause))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"cause": "source_stat"}, "“source_stat” is not one of 'address_denied', 'archive_too_large'"),
        ({"source_host": "example.com:8080"}, "it is more than a host; send it without scheme, port and path"),
        ({"source_host": "http://example.com"}, "it is more than a host"),
        ({"source_host": ""}, "it has 0 characters; send 1–255."),
    ],
)
def test_a_filter_that_could_match_nothing_is_refused(query: dict[str, str], sentence: str) -> None:
    """The caller learns what to send instead of an empty list."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(DownloadsQuery).validate_python(query)
    [problem] = validation.describe_errors(caught.value, DownloadsQuery)
    assert problem.message.startswith(sentence)


def test_a_host_may_be_an_ipv6_address() -> None:
    """Its colons are no port."""
    assert DownloadsQuery.model_validate({"source_host": "2001:DB8::1"}).source_host == "2001:db8::1"
