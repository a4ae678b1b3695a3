"""Fingerprints: the commands that a workflow's code issues, in source order, read from the code without running it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
COMMITTED = FOLDER / "fingerprints.json"
# Calls of `workflow.…` that leave something in a history; the rest only looks.
COMMANDS = frozenset(
    {
        "continue_as_new",
        "deprecate_patch",
        "execute_activity",
        "execute_activity_method",
        "execute_child_workflow",
        "execute_local_activity_method",
        "get_external_workflow_handle",
        "patched",
        "random",
        "sleep",
        "start_activity_method",
        "start_child_workflow",
        "upsert_memo",
        "upsert_search_attributes",
        "uuid4",
        "wait_condition",
    }
)

Fingerprint = dict[str, list[str]]


@cache
def read() -> dict[str, Fingerprint]:
    """For each workflow, and each class that it leaves work to, the commands and the calls of its own methods."""
    found = {}
    for path in sorted((ROOT / "workflows").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and (_is_workflow(node) or "workflow." in ast.unparse(node)):
                found[node.name] = _of_class(node)
    return found


def workflows() -> set[str]:
    """The names of the workflows themselves."""
    modules = (ast.parse(path.read_text()) for path in (ROOT / "workflows").rglob("*.py"))
    return {
        node.name for tree in modules for node in tree.body if isinstance(node, ast.ClassDef) and _is_workflow(node)
    }


def _is_workflow(node: ast.ClassDef) -> bool:
    return any("workflow.defn" in ast.unparse(each) for each in node.decorator_list)


def read_committed() -> dict[str, Fingerprint]:
    """What the repository says they are."""
    prints: dict[str, Fingerprint] = json.loads(COMMITTED.read_text())
    return prints


def _of_class(node: ast.ClassDef) -> Fingerprint:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {method.name: list(_calls(method)) for method in methods}


def _calls(method: ast.AST) -> Iterator[str]:
    calls = [each for each in ast.walk(method) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
        assert isinstance(call.func, ast.Attribute)
        owner, name = ast.unparse(call.func.value), call.func.attr
        if (owner == "workflow" and name in COMMANDS) or owner == "self":
            first = ast.unparse(call.args[0]) if call.args else ""
            queue = next((f", on {ast.unparse(each.value)}" for each in call.keywords if each.arg == "task_queue"), "")
            yield f"{owner}.{name}({first}{queue})"


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps(read(), indent=2) + "\n")
    sys.stdout.write(f"wrote {COMMITTED.relative_to(ROOT)}\n")
