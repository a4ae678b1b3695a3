"""The envelope: every answer of this room is `{code, msg}` with HTTP 200, as flowSvr's callers expect.

Who shows no right key does not come so far: that is answered by the door, with 401, as on every other route.
"""

from __future__ import annotations

import json
from enum import IntEnum
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from api.http import problems
from api.http.problems import RETRY_AFTER_SECONDS, Problem
from api.http.routes import JSON

SUCCESS = "SUCCESS"
FAIL = "FAIL_REASON::{reason}"


class Code(IntEnum):
    """The original's numbers. What it had no number for takes the nearest."""

    OK = 0
    INPUT = 8020
    BIND = 8021
    JSON = 8022
    GET = 8035
    PROCESS = 8036
    CREATE = 8037
    SET = 8041
    POSITION = 8042
    PRIORITY = 8044
    CONFIG = 8045


TASK_UNKNOWN = "task_unknown"
TYPE_UNKNOWN = "task_type_unknown"
TYPE_AMBIGUOUS = "task_type_ambiguous"
TASK_DIFFERS = "task_differs"
SET_REFUSED = "set_refused"
PRIORITY_FIELDS = ("task_priority", "priority")

_CODES = {
    "malformed_json": Code.JSON,
    "unsupported_media_type": Code.BIND,
    "unsupported_encoding": Code.BIND,
    "body_too_large": Code.BIND,
    "body_timeout": Code.BIND,
    TASK_UNKNOWN: Code.GET,
    TYPE_UNKNOWN: Code.CONFIG,
    TYPE_AMBIGUOUS: Code.CONFIG,
    TASK_DIFFERS: Code.CREATE,
    SET_REFUSED: Code.SET,
}


class Envelope(BaseModel):
    """What every answer has; the rest is there when `code` is 0."""

    model_config = ConfigDict(frozen=True)

    code: int = Field(default=Code.OK, description="0 when all is well, else what failed, by the original's numbers")
    msg: str = Field(default=SUCCESS, description="`SUCCESS`, or `FAIL_REASON::` and what was wrong and what to do")


def render(problem: Problem) -> web.Response:
    """A problem as this room shows it."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return problems.render_problem(problem)
    answer = failure(_code_of(problem), problem.detail)
    if problem.errors:
        answer["errors"] = [error.model_dump() for error in problem.errors]
    response = web.Response(body=json.dumps(answer, ensure_ascii=False).encode(), content_type=JSON)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def failure(code: Code, reason: str) -> dict[str, Any]:
    """The two members of an answer that says no."""
    return {"code": code, "msg": FAIL.format(reason=reason)}


def code_of(name: str) -> Code:
    """The number of a fault, by its name."""
    return _CODES.get(name, Code.INPUT)


def _code_of(problem: Problem) -> Code:
    if problem.code in _CODES:
        return _CODES[problem.code]
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Code.PROCESS
    if problem.errors and all(error.path.rpartition(".")[2] in PRIORITY_FIELDS for error in problem.errors):
        return Code.PRIORITY
    return Code.INPUT
