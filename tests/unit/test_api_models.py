"""Models of requests and responses."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from api.http.models import LenientRequest, Request, Response
from api.tasks.responses import ResponseEnvelope


@pytest.mark.parametrize("base", [Request, LenientRequest, Response, ResponseEnvelope])
def test_models_are_built_at_their_first_use(base: type[BaseModel]) -> None:
    """Hundreds are declared; a process that starts, or idles, does not pay for those that no request needs."""

    class Example(base):  # type: ignore[misc, valid-type]
        number: int = 0

    assert not Example.__pydantic_complete__
    assert Example.model_validate({"number": "7"}).model_dump()["number"] == 7
    assert Example.__pydantic_complete__
