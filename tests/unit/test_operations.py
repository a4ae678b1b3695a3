"""The tables of what an operator can do, and of what can stand still, are true to routes, console and commands."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import typer
import yaml

from api import audit, overview
from api.app import ROUTE_GROUPS
from api.http.routes import Route as DeclaredRoute
from cli.__main__ import app
from domain.workload import ConcernKind
from tests.support import observability
from tests.support.observability import ROOT
from tests.support.operations import OPERATIONS, iterate_cells, page
from tests.support.operations.cells import ACTIONS, Command, Console, NotOffered, Route
from tests.support.operations.routes import EQUIVALENT_ROUTES, ROUTES_ON_NO_OBJECT
from tests.support.operations.standstills import COMPONENT, OVERVIEW_LINES, STANDSTILLS, ConsolePage, Standstill
from tests.support.wire_codes import read_document

CONSOLE: Final = ROOT / "api/console/js"
ROUTES: dict[str, DeclaredRoute] = {route.name: route for group in ROUTE_GROUPS for route in group}
CELLS = list(iterate_cells())
COMMANDS = typer.main.get_group(app)
PAGES = {
    f"/console/{path.stem}{found}".replace(f"/console/{path.stem}/console", "/console")
    for path in (CONSOLE / "pages").glob("*.js")
    for found in re.findall(r"""[`"](?:\$\{BASE_PATH\})?((?:/[\w:*-]+)*)[`"]""", path.read_text())
}
"""Routes of pages: whole, or below the path of their module."""


def find_command(name: str) -> Any:
    """Return the command of this name, of a group too."""
    found: Any = COMMANDS
    for part in name.split():
        found = getattr(found, "commands", {}).get(part)
    return found


def list_fields(route: DeclaredRoute) -> set[str]:
    """Return the names of a request's fields."""
    models = (route.body, route.query)
    return {name for model in models if model for name in model.model_fields}


def test_every_object_has_a_cell_for_every_action() -> None:
    """None is forgotten, and no reason is empty."""
    assert {name: tuple(row) for name, row in OPERATIONS.items()} == dict.fromkeys(OPERATIONS, ACTIONS)
    assert [each for each in CELLS if isinstance(each, NotOffered) and len(each.reason.split()) < 2] == []


@pytest.mark.parametrize("cell", [each for each in CELLS if isinstance(each, Route)], ids=lambda cell: cell.name)
def test_a_route_exists_and_takes_these_fields(cell: Route) -> None:
    """It is in the OpenAPI document."""
    method, _, path = cell.name.partition(" ")
    assert method.lower() in read_document()["paths"].get(path, {})
    assert set(cell.fields) - list_fields(ROUTES[cell.name]) == set()


@pytest.mark.parametrize("cell", [each for each in CELLS if isinstance(each, Command)], ids=lambda cell: cell.name)
def test_a_command_exists_and_takes_these_options(cell: Command) -> None:
    """As `--help` shows them."""
    command = find_command(cell.name)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(cell.options) - known == set()


@pytest.mark.parametrize("cell", [each for each in CELLS if isinstance(each, Console)], ids=lambda cell: cell.module)
def test_the_console_offers_it(cell: Console) -> None:
    """The module has the call; one that shows first what will be changed asks a question."""
    source = (CONSOLE / cell.module).read_text()
    assert cell.source in source
    if cell.shows_first:
        assert re.search(r"askFirst\(|signFirst\(|showModal\(", source)


def test_every_action_of_the_api_is_in_the_table() -> None:
    """An audited route that is new must be added to it, or to those that act on none of its objects."""
    steering = {name for name, route in ROUTES.items() if audit.is_audited(route)}
    shown = {each.name for each in CELLS if isinstance(each, Route)} | {*EQUIVALENT_ROUTES, *ROUTES_ON_NO_OBJECT}
    assert sorted(steering - shown) == [], "Add them to tests/support/operations/: a table, or ROUTES_ON_NO_OBJECT."
    assert sorted((shown & {*EQUIVALENT_ROUTES, *ROUTES_ON_NO_OBJECT}) - steering) == []
    assert {*EQUIVALENT_ROUTES.values()} <= shown


@pytest.mark.parametrize("standstill", STANDSTILLS, ids=lambda standstill: standstill.subject)
def test_what_stands_still_is_seen(standstill: Standstill) -> None:
    """Its metric is declared, its alert is a rule that reads a metric of ours, its page is one of the console."""
    declared = {observability.name_metric(each) for each in observability.list_metrics()}
    rules: list[dict[str, Any]] = [
        rule
        for group in yaml.safe_load((observability.FOLDER / "rules.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert isinstance(standstill.metric, NotOffered) or standstill.metric in declared
    assert isinstance(standstill.alert, NotOffered) or standstill.alert in {rule["alert"] for rule in rules}
    page = standstill.page
    assert not isinstance(page, ConsolePage) or page.path in PAGES, f"no module in {CONSOLE}/pages names {page}"


def test_the_overview_has_a_line_for_what_stands_still() -> None:
    """Or the table says why not; each line has its words, and each concern is in the table."""
    words = (CONSOLE / "words/overview.js").read_text()
    lines = {each for each in OVERVIEW_LINES.values() if not isinstance(each, NotOffered)}
    assert list(OVERVIEW_LINES) == [standstill.subject for standstill in STANDSTILLS]
    assert lines == {COMPONENT, *ConcernKind}
    assert [kind for kind in ConcernKind if words.count(f"\n      {kind}: {{") != 2] == []
    rules = (observability.FOLDER / "rules.yaml").read_text()
    for system, module in overview.import_overviews().items():
        threshold = (
            f'haulage_workload_oldest_seconds{{system="{system}",state="waiting"}}) > {module.STANDSTILL_SECONDS}\n'
        )
        assert threshold in rules, system


def test_the_page_has_both_tables() -> None:
    """`python -m tests.support.operations` renews it."""
    assert page.read_tables() == page.render_tables()
