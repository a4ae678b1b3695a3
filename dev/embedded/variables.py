"""Settings as the environment variables that another process reads them from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.settings import Settings

Variable = str | int | float | bool | None | list[Any] | dict[str, Any]


def as_variables(settings: Settings) -> dict[str, str]:
    """Every value of the tree in its `HAULAGE_…` variable, secrets in clear: for the environment of a child only."""
    prefix = settings.model_config.get("env_prefix") or ""
    return {prefix + name: _text(value) for name, value in _leaves(settings.model_dump()) if value is not None}


def _leaves(tree: dict[str, Any]) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            leaves += [(f"{name.upper()}__{inner}", leaf) for inner, leaf in _leaves(value)]
        else:
            leaves.append((name.upper(), value))
    return leaves


def _text(value: Any) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case str() | Path():
            return str(value)
        case _:
            return json.dumps(value, default=_text)
