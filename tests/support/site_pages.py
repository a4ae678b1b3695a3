"""Pages of the site that are made from the code: the API, the codes of problems, and the command line."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, get_args

import typer.main

from cli.__main__ import app
from tests.support import wire_codes

Json = dict[str, Any]

FOLDER: Final = "docs/reference/"
API_PAGES: Final = f"{FOLDER}api-"
LIMITS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "`{}`",
}
ROUTES_MAX: Final = 40
"""Codes that more routes may answer do not list them."""


def build_pages() -> dict[str, str]:
    """Return the generated pages by their paths in the site."""
    document = wire_codes.read_document()
    groups = {tag["name"]: tag["description"] for tag in document["tags"]}
    return {
        f"{FOLDER}api.md": f"# API\n\n{document['info']['description']}\n"
        + _build_table(("routes", ""), [(f"[{name}](api-{name}.md)", about) for name, about in groups.items()])
        + "\nThe fields of bodies are in [models of the API](api-models.md).\n"
        + build_navigation("", {f"api-{name}": name for name in (*groups, "models")}),
        **{f"{API_PAGES}{name}.md": _build_group(name, about, document) for name, about in groups.items()},
        f"{API_PAGES}models.md": _build_models(document["components"]["schemas"]),
        f"{FOLDER}problem-codes.md": _build_codes(document),
        f"{FOLDER}command-line.md": "# The command line\n" + "".join(_build_commands(typer.main.get_command(app))),
    }


def build_navigation(head: str, pages: Mapping[str, str]) -> str:
    """Return entries of the navigation, from paths to titles; without a head they are not shown on the page itself."""
    option = f":caption: {head}" if head else ":hidden:"
    entries = "".join(f"{title} <{page}>\n" for page, title in pages.items())
    return f"\n```{{toctree}}\n{option}\n:maxdepth: 1\n\n{entries}```\n"


def to_anchor(heading: str) -> str:
    """Return the anchor of a heading, as forges make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _list_operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


def _build_group(name: str, about: str, document: Json) -> str:
    sections = [
        f"\n## `{route}`\n\n{_build_operation(operation)}"
        for route, operation in _list_operations(document)
        if name in operation["tags"]
    ]
    return f"# API: {name}\n\n{about}\n" + "".join(sections)


def _build_operation(operation: Json) -> str:
    ways = [" with ".join(way).replace("_", " ") for way in operation["security"]]
    text = f"{operation['summary']}.{' **Deprecated.**' * bool(operation.get('deprecated'))}\n\n"
    text += f"{operation.get('description', '')}\n\nOpened by any of: {'; '.join(ways) or 'nothing is needed'}.\n\n"
    text += _build_table(
        ("parameter", "in", "type", "default", ""),
        [(f"`{each['name']}`", each["in"], *_describe(each, each["schema"])) for each in operation["parameters"]],
    )
    for content in operation.get("requestBody", {}).get("content", {}).values():
        text += f"Body: {_name_type(content['schema'])}.\n\n"
    for status, response in operation["responses"].items():
        about = re.sub(r"`(\w+)`", r"[`\1`](problem-codes.md#\1)", response["description"])
        bodies = [f"{_name_type(each['schema'])} as `{media}`" for media, each in response.get("content", {}).items()]
        is_problem = int(status) >= HTTPStatus.BAD_REQUEST
        text += f"- {status} {about}{'' if is_problem or not bodies else ': ' + ', '.join(bodies)}\n"
    return text


def _build_models(schemas: Json) -> str:
    text = "# Models of the API\n"
    for name, schema in sorted(schemas.items()):
        text += f"\n## {name}\n\n{_escape(schema.get('description', ''))}\n\n"
        required = schema.get("required", [])
        rows = [
            (f"`{field}`", *_describe({**each, "required": field in required}, each, page=""))
            for field, each in schema.get("properties", {}).items()
        ]
        text += _build_table(("field", "type", "default", ""), rows) or f"{_name_type(schema, page='')}\n"
    return text


def _describe(given: Json, schema: Json, page: str = "api-models.md") -> tuple[str, str, str]:
    """Return the cells of a parameter or a field: its type, its default, and all else."""
    notes = [_escape(given.get("description", "")), "deprecated" if schema.get("deprecated") else ""]
    notes += [form.format(_escape(str(schema[word]))) for word, form in LIMITS.items() if word in schema]
    default = f"`{_escape(json.dumps(schema['default'], ensure_ascii=False))}`" if "default" in schema else ""
    return _name_type(schema, page), default or "required" * given["required"], "; ".join(filter(None, notes))


def _name_type(schema: Json, page: str = "api-models.md") -> str:
    """Return the type of a value, with a link where it is a model."""
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return f"[{name}]({page}#{to_anchor(name)})"
        case {"anyOf": list(branches)} | {"oneOf": list(branches)}:
            return " or ".join(dict.fromkeys(_name_type(branch, page) for branch in branches))
        case {"enum": list(values)}:
            return ", ".join(f"`{json.dumps(value)}`" for value in values)
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"type": "array", "items": dict(items)}:
            return f"list of {_name_type(items, page)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"object of {_name_type(values, page)}"
        case {"type": str(kind), "format": str(form)}:
            return f"{kind} ({form})"
        case _:
            return str(schema.get("type", "any value"))


def _build_codes(document: Json) -> str:
    """Build the page of codes: what each says, from the places that make it, and which routes may answer it."""
    routes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for route, operation in _list_operations(document):
        for status, response in operation["responses"].items():
            for code in re.findall(r"`(\w+)`", response["description"]):
                link = f"[`{route}`](api-{operation['tags'][0]}.md#{to_anchor(route)})"
                routes[code].append((status, link))
    sentences: dict[str, dict[str, None]] = defaultdict(dict)
    for code, call in wire_codes.find_calls_with_codes():
        sentences[code] |= dict.fromkeys(_find_sentences(call))
    text = (
        "# Codes of problems\n\n"
        "A refused request is answered with one of these as `code`; a failed download, transfer or"
        " slice has one in its status. Sentences are those of the code, with names in braces for what they quote.\n"
    )
    for code in sorted({*routes, *sentences, *wire_codes.list_codes(document)}):
        statuses = sorted({status for status, _ in routes[code]})
        links = list(dict.fromkeys(link for _, link in routes[code]))
        text += f"\n## `{code}`\n\n" + "".join(f"> {sentence}\n\n" for sentence in sentences[code])
        where = f"{len(links)} routes" if len(links) > ROUTES_MAX else ", ".join(links)
        text += f"HTTP {' and '.join(statuses)}: {where}.\n" if statuses else "Of work that was begun, or a command.\n"
    return text


def _find_sentences(call: ast.Call) -> Iterator[str]:
    """Yield the message and the hint of a fault as one text; nothing where another function makes it."""
    texts = [text for each in call.args if (text := _read_text(each)) and " " in text]
    texts += [text for each in call.keywords if each.arg in {"message", "hint"} and (text := _read_text(each.value))]
    if texts:
        yield _escape(" ".join(texts)).replace("\n", " ")


def _read_text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                str(each.value) if isinstance(each, ast.Constant) else "{" + _name_value(each) + "}" for each in values
            )
    return ""


def _name_value(node: ast.expr) -> str:
    """Return a short name of what a sentence quotes."""
    text = ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)
    return text.rpartition(".")[2] if re.fullmatch(r"[\w.]+", text) else "…"


def _build_commands(group: Any, path: str = "haulage") -> Iterator[str]:
    for name, command in group.commands.items():
        text = f"\n## `{path} {name}`\n\n{_escape(inspect.cleandoc(command.help or ''))}\n\n"
        if hasattr(command, "commands"):
            yield text
            yield from _build_commands(command, f"{path} {name}")
            continue
        rows = [
            (
                ", ".join(f"`{option}`" for option in (*each.opts, *each.secondary_opts)),
                _name_annotation(each.type_descriptor.annotation),
                "required" if each.required else _write_default(each.default),
                _escape(each.help or "") + f" `{each.envvar}` sets it, too." * bool(each.envvar),
            )
            for each in command.params
            if not each.hidden
        ]
        yield text + _build_table(("argument or option", "type", "default", ""), rows)


def _name_annotation(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    if inner := get_args(kind):
        return "several of " + _name_annotation(inner[0])
    return "" if kind is bool else getattr(kind, "__name__", str(kind)).lower()


def _write_default(value: Any) -> str:
    value = value.value if isinstance(value, Enum) else value
    return "" if value is None or isinstance(value, bool) or value == [] else f"`{_escape(str(value))}`"


def _build_table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(each.replace("\n", " ") for each in row) + " |\n" for row in rows]
    return "".join([f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n", *lines, "\n"]) if lines else ""


def _escape(text: str) -> str:
    """Escape what a table or Markdown would take for its own; within back quotes `<` is plain."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))
