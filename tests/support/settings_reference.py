"""The reference of settings, written from the tree: `python -m tests.support.settings_reference` renews the page."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from infra.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}

TABLE = "| variable | type | default | |\n|---|---|---|---|\n"
HEAD = """\
# Settings

Written from `infra/settings.py` by `python -m tests.support.settings_reference`; a test says when it is out of date.

Every process reads these variables from its environment and from a file `.env` in its working directory; the
environment wins. Lists are JSON. The address of Temporal, its namespace and its credentials are not here: they come
from Temporal's own variables and profiles (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, …).
`haulage up` and `haulage demo` set what belongs to the parts that they start, and draw the secrets.
"""


@dataclass(frozen=True)
class Variable:
    """One setting as the environment knows it."""

    name: str
    section: str
    about: str
    field: FieldInfo

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return SecretStr in {self.field.annotation, *get_args(self.field.annotation)}

    @property
    def default(self) -> str:
        """What holds when nothing is set, as one would write it."""
        match self.field.default:
            case SecretStr() as value:
                return "one for development" if value.get_secret_value() else ""
            case str() | Path() as value:
                return f"`{value}`" if str(value) else ""
            case value:
                return f"`{json.dumps(value)}`"


def variables(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> Iterator[Variable]:
    """Every leaf of the tree."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from variables(kind, (*path, name))
        else:
            variable = "HAULAGE_" + "__".join((*path, name)).upper()
            yield Variable(variable, ".".join(path), inspect.cleandoc(model.__doc__ or ""), field)


def markdown() -> str:
    """The whole page."""
    page, section = [HEAD], None
    for variable in variables():
        if variable.section != section:
            section = variable.section
            page.append(f"\n## {section or 'root'}\n\n{variable.about}\n\n{TABLE}")
        page.append(_row(variable))
    return "".join(page)


def _row(variable: Variable) -> str:
    signs = [_bound(each) for each in variable.field.metadata if type(each) in SIGNS]
    notes = [variable.field.description or "", *signs, "a secret" if variable.secret else ""]
    kind = _type(variable.field.annotation)
    return f"| `{variable.name}` | {kind} | {variable.default} | {'; '.join(filter(None, notes))} |\n"


def _bound(constraint: Any) -> str:
    kind = type(constraint)
    return f"{SIGNS[kind]} {getattr(constraint, kind.__name__.lower())}"


def _type(annotation: Any) -> str:
    words = {str: "text", SecretStr: "text", Path: "path", int: "integer", float: "number", bool: "`true` or `false`"}
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"object of {_type(get_args(annotation)[1])}"
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type(each) for each in get_args(annotation) if each is not type(None))
    return words[annotation]


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(markdown())
