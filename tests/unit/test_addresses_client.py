"""The client of addresses: what it sends, how it waits, and that its models are those of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from api.addresses import comparisons, inbox, logical_deletes, responses
from domain.addresses import messages, operations, ordering
from haulage import RequestRefused
from haulage.addresses import (
    Addresses,
    Comparison,
    ComparisonCounts,
    CycleProgress,
    CycleScheduleStatus,
    LastModuleAnswer,
    LogicalDelete,
    MessageCount,
    MessageDetails,
    MessageState,
    MessageWithModuleAnswers,
    Module,
    OperatorActionOnMessage,
    PurgeOrComparisonState,
    PurgeProgressAndResults,
    QuarantinedMessage,
    RetryCounts,
    SkipCounts,
    Topic,
    UnfinishedCounts,
    WaitKind,
    WhyMessageWaits,
)
from tests.support.api_peer import ApiPeer, problem, running_api_peer
from workflows.addresses import handle

MESSAGE = {
    "message_id": 7,
    "topic": "deleteInfinityAddress",
    "msg_no": "4711",
    "uprn_1": 12,
    "state": "given_up",
    "created_at": "2026-11-24T10:00:00Z",
    "acks": {"ed": {"ack": "Y", "at": "2026-11-24T10:00:01Z"}, "od": {"ack": None, "at": None}},
    "payload": "{}",
    "added_later": 1,
}
COUNTS: dict[str, Any] = {"topic": "deleteInfinityAddress", "oldest_at": None, "failed_in": {}}
COMPARED = (
    *("compared", "different", "presence_differs", "address_id_differs", "record_differs"),
    *("in_workbook", "with_unfinished_message"),
)
COMPARISON = {"comparison_id": "20261124T100000Z", "state": "running", "fault": None, "found": None}


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """An API with scripted responses."""
    async with running_api_peer() as running:
        yield running


@pytest.fixture
async def addresses(peer: ApiPeer) -> AsyncIterator[Addresses]:
    """A client of it."""
    async with Addresses(peer.url, "admin", who="ann", patience_seconds=30.0) as opened:
        yield opened


def _build_figures(**messages: int) -> dict[str, Any]:
    counts = [COUNTS | {"state": state, "messages": count} for state, count in messages.items()]
    others = {"quarantined": 0, "logical_deletes": 0, "removable": 0}
    return {"at": "2026-11-24T10:00:00Z", "messages": counts, **others}


async def test_figures_are_watched_until_cycles_have_nothing_to_do(peer: ApiPeer, addresses: Addresses) -> None:
    """Figures that are repeated are yielded once; what was given up is left."""
    for waiting, given_up in ((5, 0), (5, 0), (0, 2)):
        peer.says(200, _build_figures(waiting=waiting, given_up=given_up))

    seen = [(figures.unfinished, figures.needing_operator) async for figures in addresses.watch()]

    assert seen == [(5, 0), (0, 2)]


async def test_messages_are_listed_page_by_page(peer: ApiPeer, addresses: Addresses) -> None:
    """With the filter on every page."""
    peer.says(200, {"items": [MESSAGE], "next_cursor": "a"})
    peer.says(200, {"items": [MESSAGE | {"message_id": 6}], "next_cursor": None})

    found = [each async for each in addresses.list_messages(uprn=12, state=MessageState.GIVEN_UP)]

    assert [(each.message_id, each.acks[Module.ED].ack) for each in found] == [(7, "Y"), (6, "Y")]
    expected = {"uprn": "12", "state": "given_up", "history": "false", "limit": "200"}
    assert [seen.query for seen in peer.seen] == [expected, expected | {"cursor": "a"}]


@pytest.mark.parametrize(
    ("call", "response", "path", "body"),
    [
        pytest.param(lambda to: to.retry(7, "why"), MESSAGE, "messages/7/retry", {}, id="retry"),
        pytest.param(
            lambda to: to.retry_linked_messages(7, "why"),
            {"retried": 3, "busy": 0, "remaining": 0},
            "messages/7/retry-chain",
            {},
            id="retry a chain",
        ),
        pytest.param(
            lambda to: to.retry_messages("why", module=Module.OD, kind=WaitKind.FAILED),
            {"retried": 3, "busy": 0, "remaining": 0},
            "messages:retry",
            {"module": "od", "kind": "failed"},
            id="retry many",
        ),
        pytest.param(
            lambda to: to.skip(7, "why", though_touched=True),
            MESSAGE,
            "messages/7/skip",
            {"though_touched": True},
            id="skip",
        ),
        pytest.param(
            lambda to: to.skip_messages("why", ids=[7]),
            {"skipped": 1, "busy": 0, "touched": 0, "remaining": 0},
            "messages:skip",
            {"ids": [7]},
            id="skip many",
        ),
        pytest.param(
            lambda to: to.mend(3, "{}", "why"), MESSAGE, "quarantine/3/mend", {"text": "{}"}, id="mend in quarantine"
        ),
        pytest.param(
            lambda to: to.discard([3], "why"), {"discarded": 1}, "quarantine:discard", {"ids": [3]}, id="discard"
        ),
    ],
)
async def test_actions_are_signed(
    peer: ApiPeer, addresses: Addresses, call: Any, response: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    """Each names the operator and the reason, beside what it is about."""
    peer.says(200, response)

    assert await call(addresses)

    assert peer.seen[0].line == f"POST /v1/addresses/{path}"
    assert peer.seen[0].body == {"who": "ann", "reason": "why", **body}


async def test_a_purge_is_followed_to_its_end(peer: ApiPeer, addresses: Addresses) -> None:
    """Its outcome names each address."""
    peer.says(202, {"purge_id": "p1", "state": "running"})
    peer.says(200, {"purge_id": "p1", "state": "succeeded", "purged": [1], "in_use": [2]})

    purge = await addresses.purge([1, 2], "why")

    assert (purge.purged, purge.in_use) == ([1], [2])
    assert peer.seen[1].line == "GET /v1/addresses/logical-deletes/purges/p1"


@pytest.mark.parametrize("state", [PurgeOrComparisonState.SUCCEEDED, PurgeOrComparisonState.FAILED])
async def test_a_comparison_is_followed_to_its_end(
    peer: ApiPeer, addresses: Addresses, state: PurgeOrComparisonState
) -> None:
    """Whether it has a result or failed."""
    found = {
        **dict.fromkeys(COMPARED, 0),
        "made_at": "2026-11-24T10:00:00Z",
        "uprns_by_module": {"ed": 0},
        "url": "https://store/workbook",
    }
    peer.says(202, COMPARISON)
    peer.says(200, COMPARISON)
    peer.says(
        200,
        COMPARISON | {"state": state, "found": found if state is PurgeOrComparisonState.SUCCEEDED else None},
    )

    comparison = await addresses.compare()

    assert (comparison.state, comparison.found is not None) == (
        state,
        state is PurgeOrComparisonState.SUCCEEDED,
    )
    assert peer.seen[2].line == "GET /v1/addresses/comparisons/20261124T100000Z"


async def test_a_message_that_a_module_has_is_not_skipped(peer: ApiPeer, addresses: Addresses) -> None:
    """The API's code says so."""
    peer.says(409, problem(409, "message_touched", "Message 7 has been applied by ed."))

    with pytest.raises(RequestRefused) as refused:
        await addresses.skip(7, "why")

    assert refused.value.code == "message_touched"


@pytest.mark.parametrize(
    ("server", "client", "only_server"),
    [
        pytest.param(responses.MessageSummary, MessageWithModuleAnswers, (), id="message"),
        pytest.param(responses.MessageResponse, MessageDetails, (), id="message with details"),
        pytest.param(responses.WhyMessageWaits, WhyMessageWaits, (), id="wait"),
        pytest.param(responses.LastModuleAnswerWithTrace, LastModuleAnswer, (), id="acknowledgement"),
        pytest.param(responses.OperatorActionOnMessage, OperatorActionOnMessage, (), id="action"),
        pytest.param(responses.UnfinishedCountsResponse, UnfinishedCounts, (), id="figures"),
        pytest.param(responses.UnfinishedCount, MessageCount, (), id="counts"),
        pytest.param(responses.CycleResponse, CycleScheduleStatus, (), id="cycle"),
        pytest.param(responses.CycleProgress, CycleProgress, (), id="progress of a cycle"),
        pytest.param(responses.RetryMessagesResponse, RetryCounts, (), id="retry"),
        pytest.param(responses.SkipMessagesResponse, SkipCounts, (), id="skip"),
        pytest.param(inbox.QuarantinedMessageSummary, QuarantinedMessage, (), id="quarantine"),
        pytest.param(logical_deletes.LogicalDeleteSummary, LogicalDelete, (), id="logical delete"),
        pytest.param(logical_deletes.PurgeResponse, PurgeProgressAndResults, (), id="purge"),
        pytest.param(comparisons.ComparisonResponse, Comparison, (), id="comparison"),
        pytest.param(comparisons.ComparisonCounts, ComparisonCounts, (), id="result of a comparison"),
    ],
)
def test_models_have_the_fields_of_the_api(
    server: type[BaseModel], client: type[BaseModel], only_server: Iterable[str]
) -> None:
    """Except for those that are named here with the pair."""
    assert server.model_fields.keys() - client.model_fields.keys() == set(only_server)
    assert client.model_fields.keys() <= server.model_fields.keys()


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (messages.Topic, Topic),
        (messages.MessageState, MessageState),
        (operations.Module, Module),
        (ordering.WaitKind, WaitKind),
        (handle.WorkflowState, PurgeOrComparisonState),
    ],
)
def test_words_are_those_of_the_api(server: type[StrEnum], client: type[StrEnum]) -> None:
    """Topics, states, modules and reasons."""
    assert {each.value for each in server} == {each.value for each in client}
