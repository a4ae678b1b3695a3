"""Times that requests are bounded by: one that ends before it begins holds nothing, and is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from api.addresses import actions
from api.addresses import queries as address_queries
from api.downloads import queries
from api.http import validation
from api.http.models import Request
from api.orders import requests as order_requests
from api.projects import CreateKeyRequest

EARLY, LATE = "2026-01-02T09:00:00Z", "2026-01-02T10:00:00Z"
SKIP = {"reason": "the shop was closed"}
BOUNDED: list[tuple[type[Request], str, str, dict[str, Any]]] = [
    (order_requests.SliceSelectionRequest, "start", "end", {}),
    (order_requests.SkipSlicesRequest, "start", "end", SKIP),
    (order_requests.SlicesQuery, "start", "end", {}),
    (order_requests.OrdersQuery, "modified_after", "modified_before", {}),
    (order_requests.ExportMarkRequest, "modified_after", "modified_before", {"platform": "shop-1"}),
    (
        order_requests.DownloadSourcePageQuery,
        "modified_after",
        "modified_before",
        {"platform": "shop-1", "mark": "1-1", "page": "0", "page_size": "1"},
    ),
    (queries.DownloadsQuery, "created_after", "created_before", {}),
    (address_queries.MessagesQuery, "created_after", "created_before", {}),
    (actions.CountFailedQuery, "created_after", "created_before", {}),
    (actions.FailedMessagesRequest, "created_after", "created_before", {"who": "Ada", "reason": "mended"}),
]


@pytest.mark.parametrize(("model", "first", "last", "others"), BOUNDED)
@pytest.mark.parametrize("end", [EARLY, LATE])
def test_a_time_that_ends_before_it_begins_is_refused(
    model: type[Request], first: str, last: str, others: dict[str, Any], end: str
) -> None:
    """The sentence names both bounds as they were sent, also where they are the same moment."""
    with pytest.raises(ValidationError) as refused:
        model.model_validate_json(_json({first: LATE, last: end, **others}))

    [problem] = validation.describe_errors(refused.value, model)
    told = f"{end[:-1]}+00:00"
    assert problem.message == f"{first} 2026-01-02T10:00:00+00:00 is not before {last} {told}; send a later {last}."


@pytest.mark.parametrize(("model", "first", "last", "others"), BOUNDED)
def test_a_time_may_be_open_or_end_later(model: type[Request], first: str, last: str, others: dict[str, Any]) -> None:
    """Either bound alone, or both in turn."""
    for bounds in ({first: EARLY}, {last: LATE}, {first: EARLY, last: LATE}):
        assert model.model_validate_json(_json({**bounds, **others}))


@pytest.mark.parametrize("end", ["9999-12-31T23:59:59-05:00", "2200-01-01T00:00:01Z", "1969-12-31T23:59:59Z"])
def test_a_key_expires_at_a_time_that_every_answer_can_hold(end: str) -> None:
    """In UTC the first is in the year 10000: the key could not be used, and the project's keys not be listed."""
    with pytest.raises(ValidationError, match="it is outside 1970–2200; choose a time in that range"):
        CreateKeyRequest.model_validate_json(_json({"expires_at": end}))


def _json(fields: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": "{value}"' for name, value in fields.items()) + "}"
