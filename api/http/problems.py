"""Problems: errors of the API in RFC 9457 `application/problem+json`, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator, ConfigDict, Field

from api.http.models import Response
from domain.faults import (
    Conflict,
    Fault,
    Forbidden,
    Gone,
    Invalid,
    Missing,
    Paused,
    QuotaExhausted,
    SourceFault,
    Unauthenticated,
    sanitize_and_shorten_text,
)
from infra import outages

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

FAULT_STATUS: dict[type[Fault], HTTPStatus] = {
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    Missing: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Gone: HTTPStatus.GONE,
    QuotaExhausted: HTTPStatus.TOO_MANY_REQUESTS,
    SourceFault: HTTPStatus.BAD_GATEWAY,
    Paused: HTTPStatus.SERVICE_UNAVAILABLE,
}


_PHRASES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "Range Not Satisfiable",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Content",
}
"""By RFC 9110; Python before 3.13 has those of RFC 7231."""

_CODES = {404: "not_found", 405: "method_not_allowed", 417: "expectation_failed"}
"""What aiohttp refuses before a handler runs; other codes are not its names, which change with Python."""


def get_phrase(status: HTTPStatus) -> str:
    """Return a status in words, the same on each Python."""
    return _PHRASES.get(status, status.phrase)


def _escape_surrogates(text: str) -> str:
    # A caller's text may hold lone surrogates, which JSON cannot encode.
    return sanitize_and_shorten_text(text.encode("utf-8", "backslashreplace").decode())


PrintableText = Annotated[str, BeforeValidator(_escape_surrogates)]


class FieldProblem(Response):
    """A field that was wrong."""

    path: PrintableText = Field(description="where in the body, query or path, e.g. `headers[2].name`")
    message: PrintableText = Field(description="what was wrong with it and what to send instead")


class Problem(Response):
    """An error of a request."""

    type: str = Field(description="`urn:haulage:problem:` and the code, or the type that is registered for it")
    title: str = Field(description="the status in words")
    status: int = Field(ge=400, le=599)
    detail: PrintableText = Field(description="what was wrong and what to do next, for people")
    code: str = Field(description="stable name of the problem, for programs")
    request_id: str = Field(description="quote this when you ask for help; it is also in the X-Request-Id header")
    errors: list[FieldProblem] = Field(default=[], description="the fields that were wrong, the first 100 of them")


class QuotaProblem(Problem):
    """An error because of a used-up quota."""

    model_config = ConfigDict(serialize_by_alias=True)

    violated_policies: list[str] = Field(
        serialization_alias="violated-policies", description="the used-up quotas, as the RateLimit headers name them"
    )
    retry_after_seconds: int = Field(exclude=True)


Renderer = Callable[[Problem], web.Response]


class RequestRejected(Exception):
    """The framework rejects the request before any handler runs."""

    def __init__(
        self, status: HTTPStatus, code: str, message: str, hint: str = "", errors: Sequence[FieldProblem] = ()
    ) -> None:
        self.status = status
        self.code = code
        self.errors = list(errors)
        super().__init__(f"{message} {hint}".strip())


def convert_error_to_problem(error: Exception, request_id: str) -> Problem:
    """Convert an exception to a problem; an internal failure tells only the request id."""
    match error:
        case QuotaExhausted():
            return _convert_quota_error(error, request_id)
        case Fault():
            errors = [FieldProblem(path=error.field, message=error.record.message)] if error.field else []
            return build_problem(
                get_fault_status(type(error)), error.record.code, error.record.sentence, request_id, errors
            )
        case RequestRejected():
            return build_problem(error.status, error.code, str(error), request_id, error.errors)
        case web.HTTPException():
            return _convert_aiohttp_error_to_problem(error, request_id)
        case _ if outages.is_outage(error):
            return build_problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", outages.describe_outage(error), request_id
            )
        case _:
            sentence = f"An internal error occurred. Try again; if it persists, report the request id {request_id}."
            return build_problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", sentence, request_id)


def build_problem(
    status: HTTPStatus, code: str, detail: str, request_id: str, errors: Sequence[FieldProblem] = ()
) -> Problem:
    """Return a problem."""
    return Problem(
        type=f"urn:haulage:problem:{code}",
        title=get_phrase(status),
        status=status,
        detail=detail,
        code=code,
        request_id=request_id,
        errors=list(errors),
    )


def render_problem(problem: Problem) -> web.Response:
    """Render a problem as JSON: the default renderer."""
    response = web.Response(status=problem.status, body=problem.model_dump_json().encode(), content_type=MEDIA_TYPE)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="haulage"'
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(problem, QuotaProblem):
        response.headers["Retry-After"] = str(problem.retry_after_seconds)
    return response


def get_problem_model(status: HTTPStatus) -> type[Problem]:
    """Return the model of problems with a status."""
    return QuotaProblem if status == HTTPStatus.TOO_MANY_REQUESTS else Problem


def get_fault_status(kind: type[Fault]) -> HTTPStatus:
    """Return the status of a class of faults; a subclass has that of its parent."""
    return next(FAULT_STATUS[parent] for parent in kind.__mro__ if parent in FAULT_STATUS)


def _convert_quota_error(error: QuotaExhausted, request_id: str) -> QuotaProblem:
    plain = build_problem(get_fault_status(type(error)), error.record.code, error.record.sentence, request_id)
    return QuotaProblem(
        **plain.model_dump(exclude={"type"}),
        type=QUOTA_EXCEEDED,
        violated_policies=error.violated,
        retry_after_seconds=error.retry_after_seconds,
    )


def _convert_aiohttp_error_to_problem(error: web.HTTPException, request_id: str) -> Problem:
    status = HTTPStatus(error.status)
    match error:
        case web.HTTPNotFound():
            sentence = "There is nothing at this address. Check the path against /docs."
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            sentence = f"This address does not take {error.method}. Use {allowed}."
        case _:
            sentence = f"The request was refused: {error.reason}."
    return build_problem(status, _CODES.get(status, "malformed_request"), sentence, request_id)
