"""What layers keep to beyond the contracts of imports in `pyproject.toml`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from systems import SYSTEMS

ROOT = Path(__file__).parents[2]
LAYERS = ("api", "workflows", "activities", "services", "stores", "clients", "infra", "domain", "excel", "dev", "cli")
OWN_PORTS = {"infra/metrics.py"}
"""It asks processes of ours on this machine."""
OPENING = {"session", "connection"}
"""Methods of the database that open a transaction."""
HEAVY = {"numpy", "pandas", "pyarrow", "xlsxwriter"}


def opening_sessions() -> set[str]:
    """The modules of the server that open sessions over HTTP."""
    found = set()
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ClientSession"):
                    found.add(path.relative_to(ROOT).as_posix())
    return found


def test_only_clients_open_sessions_to_outside() -> None:
    """In one module, which bounds, guards and closes them for all clients."""
    assert opening_sessions() == {*OWN_PORTS, "clients/http/transport.py"}


def test_one_module_uses_private_methods_of_the_store_s_library() -> None:
    """A new version of it may change them; `test_objects_wire.py` and the tests of objects hold that module."""
    private = re.compile(r"minio\._[a-z]|super\(\)\._build_headers")
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "infra").rglob("*.py")}

    assert [name for name, source in sources.items() if private.search(source)] == ["infra/objects/client.py"]


def find_statements(source: str) -> list[str]:
    """What a module does with a session or a connection of the database, other than to hand it on."""
    tree = ast.parse(source)
    held = set()
    for node in ast.walk(tree):
        match node:
            case ast.withitem(context_expr=ast.Call(func=ast.Attribute(attr=opened)), optional_vars=ast.Name(id=name)):
                is_held = opened in {"session", "connection"}
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                is_held = bool(re.match(r"(asyncpg\.)?(Async)?(Session|Connection)\b", ast.unparse(kind)))
            case _:
                continue
        held |= {name} if is_held else set()
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [ast.unparse(node) for node in used if ast.unparse(node.value) in held]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("async with database.session() as session:\n    await store.find(session, 1)", []),
        ("async with database.session() as session:\n    await session.get(Row, 1)", ["session.get"]),
        ("async with call.services.database.connection() as raw:\n    await raw.fetch('SELECT 1')", ["raw.fetch"]),
        ("async def read(session: Session) -> None:\n    session.add(Row())", ["session.add"]),
        ("def shown(session: ConsoleSession) -> None:\n    session.key_id", []),
    ],
)
def test_statements_are_found_in_whatever_way_they_are_made(source: str, found: list[str]) -> None:
    """A session may be opened and handed on; who asks it for anything makes a statement."""
    assert find_statements(source) == found


def test_the_api_makes_no_statement() -> None:
    """It opens transactions and hands them to stores; the contract of imports does not see a statement in a string."""
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "api").rglob("*.py")}

    assert {name: made for name, source in sources.items() if (made := find_statements(source))} == {}
    assert "api/orders/actions.py" in sources


def find_transactions(source: str) -> list[str]:
    """Where a module opens a session or a connection of the database."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr in OPENING]


def test_layers_between_api_and_stores_open_no_transaction() -> None:
    """What is one transaction is one function of a store; the API may join several."""
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for layer in ("workflows", "activities", "services", "clients", "cli")
        for path in (ROOT / layer).rglob("*.py")
    }

    assert {name: opened for name, source in sources.items() if (opened := find_transactions(source))} == {}
    assert set(find_transactions((ROOT / "stores/orders/attempts.py").read_text())) == {"database.session"}


def test_modules_import_each_other_in_one_direction() -> None:
    """Who reads a module needs to read only those below it; the contracts see to layers and systems."""
    with (ROOT / "pyproject.toml").open("rb") as settings:
        packages = tomllib.load(settings)["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*packages, cache_dir=None)

    try:
        order = [
            *TopologicalSorter(
                {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
            ).static_order()
        ]
    except CycleError as error:
        pytest.fail(f"These import each other in a circle: {' → '.join(error.args[1])}")
    assert order.index("domain.faults") < order.index("api.app")


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("layer", ["api", "workflows", "activities", "stores", "domain"])
def test_every_system_has_a_package_in_every_layer(layer: str, system: str) -> None:
    """Who knows one system finds the next."""
    assert (ROOT / layer / system / "__init__.py").exists()


@pytest.mark.parametrize("system", [*SYSTEMS, "webhooks"])
def test_every_system_is_reached_in_the_same_way(system: str) -> None:
    """Its names, and what starts its workflows."""
    assert (ROOT / "domain" / system / "names.py").exists() or (ROOT / "domain" / f"{system}.py").exists()
    assert (ROOT / "workflows" / system / "handle.py").exists()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        pytest.param("api.app", {"activities", "cli", "dev", "sims", *HEAVY}, id="api"),
        pytest.param("worker", {"api", "cli", "dev", "sims"}, id="worker"),
        pytest.param("workflows.downloads.download", HEAVY, id="workflow", marks=pytest.mark.long),
        pytest.param("cli.serving", HEAVY, id="serving", marks=pytest.mark.long),
        *(
            pytest.param(
                f"workflows.{system}.handle",
                {"activities", "api", *HEAVY},
                id=f"{system}-handle",
                marks=() if system == "downloads" else pytest.mark.long,
            )
            for system in (*SYSTEMS, "webhooks")
        ),
    ],
)
def test_a_process_loads_only_its_own_layers(module: str, unwanted: set[str]) -> None:
    """On import; `tests/integration/test_loaded_modules.py` looks again when processes are ready."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert module.partition(".")[0] in loaded
    assert loaded & unwanted == set()
