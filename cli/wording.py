"""How commands word errors: usage errors in one sentence, and commands where the API names its routes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from typer.exceptions import TyperException

_PYDANTIC_WORDINGS: Final = {"Value error, ": "", "Input should be": "it should be"}

_ROUTE: Final = re.compile(r"`?\b(?:GET|POST|PUT|PATCH|DELETE) /v1/[^\s`;,]*[^\s`;,.]`?")
_COMMANDS: Final = (
    (r"POST /v1/register_task_type", "tasks register"),
    (r"POST /v1/platforms/([^/?]+)/(pause|resume|remove)", r"orders \2 \1 --reason …"),
    (r"PATCH /v1/platforms/(?!default/)([^/?]+)/config", r"orders set-up \1 …"),
    (r"POST /v1/downloads", "export"),
    (r"POST /v1/downloads/([^/?]+)/(cancel|retry)", r"downloads \2 \1"),
    (r"POST /v1/transfers", "transfers send"),
    (r"GET /v1/addresses/messages", "addresses list"),
    (r"GET /v1/addresses/cycle", "addresses status"),
    (r"POST /v1/addresses/comparisons", "addresses compare"),
    (r"GET (.+\?.+)", r"ask '\1'"),
    (r"GET (.+)", r"ask \1"),
    (r"(POST|PUT|PATCH|DELETE) (.+)", r"ask \2 --method \1"),
)
"""What does the same as a route; the first that matches it whole is named, and `ask` sends any request."""


_PHRASES: Final = (
    (r"^The (?:body|query|header): ", "The request: "),
    (
        r"(?:Put it into the address, \S+, or send|Send) it as `Authorization: Bearer hlg_…`\.",
        "Put it into HAULAGE_API_KEY.",
    ),
    (r"Name (?:it|the project) in the header Haulage-Project, or use", "Use"),
    (r"(in `\.haulage/project-key`)\.", r"\1; commands take another key from HAULAGE_API_KEY."),
    (r"\bcreate_task answered", "`haulage tasks create` printed"),
    (r"(`haulage export`) answered", r"\1 printed"),
)
"""What a program would do, and what a person at a terminal does instead."""


def format_time(moment: datetime) -> str:
    """Return a time to the second, with its zone: machines and people are in several."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def describe_usage_error(error: TyperException) -> str:
    """Return what was wrong with a command line, and where its help is."""
    context = getattr(error, "ctx", None)
    text = " ".join(error.format_message().split())
    for wording, plain in _PYDANTIC_WORDINGS.items():
        text = text.replace(wording, plain)
    sentence = text if text.endswith("?") else f"{text.rstrip('.')}."
    return f"{sentence} See `{context.command_path if context else 'haulage'} --help`."


def describe_json_error(subject: str, error: ValueError) -> str:
    """Return what is wrong with a text that should be JSON, where, and what is forgotten most.

    Args:
        subject: What the text is, with its verb: "--body holds".
    """
    return f"{subject} no JSON: {error}. Names and texts need double quotes."


def replace_routes_by_commands(sentence: str) -> str:
    """Return a sentence of the API for people at a terminal, who sent no HTTP request.

    Routes become commands, headers the variable that holds a key, and a body or a query, of which the command line has
    none, the request.
    """
    text = _ROUTE.sub(_name_command, sentence)
    for said, printed in _PHRASES:
        text = re.sub(said, printed, text)
    return text


def _name_command(route: re.Match[str]) -> str:
    text = route[0].strip("`")
    for pattern, command in _COMMANDS:
        if found := re.fullmatch(pattern, text):
            return f"`haulage {found.expand(command)}`"
    raise AssertionError(f"no pattern matches {text}")
