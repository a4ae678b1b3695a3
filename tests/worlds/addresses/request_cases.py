"""Cases: two values of each field of each request about addresses, with which outcomes differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel

from api.addresses.actions import CountFailedQuery, FailedMessagesRequest, SkipMessageRequest
from api.addresses.comparisons import ComparisonPath
from api.addresses.configuration import SetAddressConfigRequest
from api.addresses.context import routes
from api.addresses.inbox import (
    DiscardMessagesRequest,
    MendMessageRequest,
    PushedMessage,
    PushQuery,
    PushRequest,
    QuarantinePath,
    QuarantineQuery,
    TopicPath,
)
from api.addresses.logical_deletes import LogicalDeletesQuery, PurgeAddressesRequest, PurgePath
from api.addresses.queries import MessagePath, MessagesQuery
from api.http.models import EmptyQuery, OperatorRequest
from api.http.pagination import PageQuery
from domain.addresses.messages import Topic
from stores.addresses.configuration import AddressModuleOptions, AddressModulesOptions, AddressOptions

NEXT = "next_cursor of the page before"
MIDDLE = "a moment between the first messages and the others"


@dataclass(frozen=True)
class Case:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""


SIGNED = {"who": Case("ann", "bob"), "reason": Case("because of one", "because of another")}
PAGE = {"limit": Case(1, 2), "cursor": Case(None, NEXT, {"limit": 1})}
FILTER_CASES = {
    "topic": Case(Topic.SWAP, Topic.DELETE),
    "uprn": Case(1, 2),
    "state": Case("failed", "given_up"),
    "module": Case("ed", "od"),
    "kind": Case("failed", "missing"),
    "created_after": Case(None, MIDDLE),
    "created_before": Case(None, MIDDLE),
}
LIST_CASES: Mapping[str, tuple[type[BaseModel], Mapping[str, Case]]] = {
    "messages": (MessagesQuery, {**FILTER_CASES, **PAGE, "history": Case("false", "true")}),
    "messages:count": (CountFailedQuery, FILTER_CASES),
    "quarantine": (
        QuarantineQuery,
        {**PAGE, "topic": Case(Topic.SWAP, Topic.DELETE), "mended": Case("false", "true")},
    ),
    "logical-deletes": (
        LogicalDeletesQuery,
        {
            **PAGE,
            "uprn": Case(1, 2),
            "address_id": Case(1_001, 1_002),
            "removable": Case("true", "false"),
            "purged": Case("false", "true"),
        },
    ),
    "config/versions": (PageQuery, PAGE),
}
"""Lists, by their path below `/v1/addresses/`."""
BULK_CASES = {**FILTER_CASES, **SIGNED, "ids": Case([1], [1, 2]), "limit": Case(1, 2)}
"""Of retries and skips of many; ids are places among the messages of the test."""
ACTION_CASES: Mapping[type[BaseModel], Mapping[str, Case]] = {
    OperatorRequest: SIGNED,
    SkipMessageRequest: {**SIGNED, "though_touched": Case(False, True)},
    FailedMessagesRequest: BULK_CASES,
    DiscardMessagesRequest: {**SIGNED, "ids": Case([1], [1, 2])},
    MendMessageRequest: {**SIGNED, "text": Case('{"uprn": 71}', '{"uprn": 72}')},
    PurgeAddressesRequest: {**SIGNED, "address_ids": Case([1_001], [1_002])},
}
PUSH_CASES: Mapping[type[BaseModel], Mapping[str, Case]] = {
    TopicPath: {"topic": Case(Topic.CREATE_UPDATE, Topic.DELETE)},
    PushQuery: {"token": Case("the secret", "another one")},
    PushRequest: {"message": Case({"messageId": "whole-1"}, {"messageId": "whole-2"})},
    PushedMessage: {
        "message_id": Case("m-1", "m-2"),
        "data": Case('{"uprn": 81, "address_id": 1, "record": {}}', '{"uprn": 82, "address_id": 1, "record": {}}'),
        "publish_time": Case("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    },
}
MODULE_OPTION_CASES: Mapping[str, Case] = {
    "base_url": Case("ed", "im"),
    "credentials": Case("oss", "wrong"),
    "timeout_seconds": Case(0.2, 30),
    "concurrency": Case(1, 3),
    "batch": Case(1, 3),
    "retries": Case(0, 3),
    "retry_pause_seconds": Case(0, 3),
    "breaker_failures": Case(1, 1_000),
    "breaker_seconds": Case(0, 600),
    "paused": Case(False, True),
}
CYCLE_OPTION_CASES: Mapping[str, Case] = {
    "threshold": Case(1, 3),
    "minimum_share": Case(0, 0.33),
    "pause_seconds": Case(2, 3),
    "failed_cycles_max": Case(1, 2),
    "retry_pause_seconds": Case(0, 600),
    "group_messages_max": Case(1, 3),
    "step_concurrency": Case(1, 3),
    "check_hours": Case(1, 2),
    "auto_purge": Case(False, True),
}
MODULES_CASES: Mapping[str, Case] = dict.fromkeys(("ed", "im", "wfm", "od"), Case({"batch": 1}, {"batch": 3}))
PATH_MODELS: tuple[type[BaseModel], ...] = (MessagePath, QuarantinePath, PurgePath, ComparisonPath)
"""Requests that only name what they are about."""
CASES_BY_MODEL: Mapping[type[BaseModel], Mapping[str, Case]] = {
    **dict(LIST_CASES.values()),
    **ACTION_CASES,
    **PUSH_CASES,
    SetAddressConfigRequest: {**SIGNED, "options": Case({"threshold": 1}, {"threshold": 3})},
    AddressOptions: {**CYCLE_OPTION_CASES, "modules": Case({"ed": {"batch": 1}}, {"ed": {"batch": 3}})},
    AddressModulesOptions: MODULES_CASES,
    AddressModuleOptions: MODULE_OPTION_CASES,
}


def list_models() -> frozenset[type[BaseModel]]:
    """List the request models of all routes of addresses, with the models of their fields."""
    found: set[type[BaseModel]] = set()
    left = [model for route in routes for model in (route.body, route.query, route.headers, route.path_model) if model]
    while left:
        model = left.pop()
        if model not in found and model is not EmptyQuery:
            found.add(model)
            left += [inner for each in model.model_fields.values() for inner in _list_inner(each.annotation)]
    return frozenset(found)


def _list_inner(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _list_inner(part)
