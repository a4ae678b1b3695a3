"""The client of GSE accepts only real successes, and raises each failure by what a caller may do next."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from clients.gse import GseClient, GseFailure, GseForbidden, GseOutcomeUnknown, GseRefused, GseUnavailable
from domain.transfers.gse import AGENT_RUNNING, UNKNOWN_CODE, FolderAndFileName, GseAgentWithUser, GseVerdict
from infra.component_settings import GseSettings
from sims.gse.scenario import GseAction, GseCall
from tests.support.gse import QUICK, call_fault, gse_settings, make_hosts, make_order, running_gse_client
from tests.support.http_peer import Script, answer, drips, running_peer, says
from tests.support.waiting import eventually

OK = {"code": 0, "message": "", "data": {"result": {"task_id": "GSE:1"}}}


def answer_with(body: object, *headers: str, status: str = "200 OK") -> Script:
    """A server that answers every call with this."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return says(answer(text, *headers, status=status))


async def test_a_transfer_runs_to_its_end() -> None:
    """Begun, asked after, and done: by keys that hold colons and containers alike."""
    targets = [
        GseAgentWithUser("0:10.0.0.1", "", "app"),
        GseAgentWithUser("a", "docker://c1", "app"),
        GseAgentWithUser("a", "c2", "app"),
    ]
    async with running_gse_client() as (world, client):
        task_id = await client.begin_transfer(make_order(targets))
        results = await client.get_results(task_id)
        assert set(results.downloads) == {each.key for each in targets}
        assert results.upload

        async def are_all_successful() -> bool:
            records = (await client.get_results(task_id)).downloads.values()
            return all(record.verdict is GseVerdict.SUCCESS for record in records)

        assert await eventually(are_all_successful)
        assert world.sends.total() == 3


async def test_results_are_of_the_agents_that_are_named() -> None:
    """Only these agents are requested; an empty list is left out, because GSE would return no records for it."""
    async with running_gse_client() as (_, client):
        task_id = await client.begin_transfer(make_order(make_hosts(5)))
        some = await client.get_results(task_id, make_hosts(2))
        everything = await client.get_results(task_id, [])

    assert set(some.downloads) == {("host-0", ""), ("host-1", "")}
    assert some.upload is None
    assert len(everything.downloads) == 5


async def test_a_termination_names_its_targets() -> None:
    """The named end, the others go on; an empty list, which the original sent, is refused at once."""
    async with running_gse_client(call_fault(GseAction.STUCK)) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(3)))
        with pytest.raises(ValueError, match="no agent was named"):
            await client.request_termination(task_id, [])
        assert world.calls[GseCall.TERMINATE] == 0
        await client.request_termination(task_id, make_hosts(2))

        async def is_terminated() -> bool:
            return (await client.get_results(task_id)).downloads["host-1", ""].error_code == 126

        assert await eventually(is_terminated)
        assert (await client.get_results(task_id)).downloads["host-2", ""].verdict is GseVerdict.RUNNING


@pytest.mark.parametrize("odd", [b"NaN", b"-Infinity", b'"half \\ud83d of it"'])
async def test_one_odd_word_does_not_hide_the_other_records(odd: bytes) -> None:
    """No JSON has NaN, and no text half a character; the answer is read all the same."""
    record = b'{"error_code": 0, "error_msg": %b, "content": {"type": "download", "dest_agent_id": "a"}}'
    body = b'{"code": 0, "data": {"result": [%b]}}' % (record % odd)
    async with running_peer(answer_with(body)) as server, GseClient(gse_settings(server.url)) as client:
        results = await client.get_results("task")
    assert results.downloads[("a", "")].error_code == 0


async def test_an_id_is_noted_as_it_is_read() -> None:
    """Before the call returns, and not if there is no id."""
    noted: list[str] = []
    async with running_gse_client(call_fault(GseAction.NO_TASK_ID, times=1)) as (_, client):
        with pytest.raises(GseOutcomeUnknown):
            await client.begin_transfer(make_order(make_hosts(1)), noted.append)
        assert noted == []
        task_id = await client.begin_transfer(make_order(make_hosts(1)), noted.append)
    assert noted == [task_id]


async def test_so_many_calls_at_a_time_and_not_more() -> None:
    """Of every kind, those that are begun once and those that are repeated: the setting holds for all together."""
    under_way = most = 0

    async def answer_slowly(writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        await answer_with(OK)(writer)

    async with (
        running_peer(answer_slowly) as server,
        GseClient(gse_settings(server.url, concurrency=3)) as client,
    ):
        [host] = make_hosts(1)
        begun = [client.begin_transfer(make_order([host])) for _ in range(6)]
        await asyncio.gather(*begun, *(client.request_termination("GSE:1", [host]) for _ in range(6)))
    assert len(server.heads) == 12
    assert most == 3


async def test_so_many_calls_a_second_and_not_more() -> None:
    """Evenly, and what is repeated counts again."""
    moments: list[float] = []

    async def refuse_at_first(writer: asyncio.StreamWriter) -> None:
        moments.append(time.monotonic())
        busy = len(moments) <= 2
        status, body = ("503 Busy", {"code": 1_650_300}) if busy else ("200 OK", OK)
        await answer_with(body, status=status)(writer)

    async with (
        running_peer(refuse_at_first) as server,
        GseClient(gse_settings(server.url, calls_per_second=20)) as client,
    ):
        began = time.monotonic()
        await asyncio.gather(*(client.request_termination("GSE:1", make_hosts(1)) for _ in range(5)))
    assert len(moments) == 7
    # Six pauses of 50 ms before the last one is sent, however long each is on its way.
    assert moments[-1] - began >= 0.29


async def test_agent_states_come_in_pages() -> None:
    """More agents than a call takes are asked for in several."""
    async with running_gse_client() as (world, client):
        states = await client.get_agent_states([each.agent_id for each in make_hosts(2_500)])

    assert len(states) == 2_500
    assert set(states.values()) == {AGENT_RUNNING}
    assert world.calls[GseCall.STATES] == 3


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"<html>Bad Gateway</html>", "200 OK", GseOutcomeUnknown),
        (b"", "200 OK", GseOutcomeUnknown),
        (b"[]", "200 OK", GseOutcomeUnknown),
        (b'{"code": 0, "data": {"result"', "200 OK", GseOutcomeUnknown),
        (b"[" * 100_000, "200 OK", GseOutcomeUnknown),
        (b'{"code": 0, "message": "\xff"}', "200 OK", GseOutcomeUnknown),
        ({"message": "", "data": OK["data"]}, "200 OK", GseOutcomeUnknown),  # the original took no code for 0
        ({**OK, "code": None}, "200 OK", GseOutcomeUnknown),
        ({**OK, "code": "0"}, "200 OK", GseOutcomeUnknown),
        ({**OK, "code": False}, "200 OK", GseOutcomeUnknown),
        ({**OK, "data": None}, "200 OK", GseOutcomeUnknown),
        ({**OK, "data": {"task_id": "GSE:1"}}, "200 OK", GseOutcomeUnknown),
        ({**OK, "data": {"result": {"task_id": ""}}}, "200 OK", GseOutcomeUnknown),
        ({**OK, "data": {"result": {"task_id": 7}}}, "200 OK", GseOutcomeUnknown),
        ({**OK, "data": {"result": {"task_id": "GSE\0:1"}}}, "200 OK", GseOutcomeUnknown),
        (OK, "500 Internal Server Error", GseOutcomeUnknown),  # the original never looked at the status
        (OK, "302 Found", GseRefused),
        ({"code": 1650201, "message": "reset"}, "502 Bad Gateway", GseOutcomeUnknown),
        ({"code": 1650401, "message": "slow"}, "504 Gateway Timeout", GseOutcomeUnknown),
        (b"<html>busy</html>", "503 Service Unavailable", GseUnavailable),
        ({"code": 1650300, "message": "busy"}, "200 OK", GseUnavailable),  # a stage may rewrite the status
        ({"code": 1642902, "message": "slow down"}, "429 Too Many Requests", GseUnavailable),
        ({"code": 1642902, "message": "slow down"}, "200 OK", GseUnavailable),
        ({"code": 1640101, "message": "who?"}, "401 Unauthorized", GseForbidden),
        ({"code": 1640302, "message": "no"}, "403 Forbidden", GseForbidden),
        ({"code": 1640001, "message": "what?"}, "200 OK", GseRefused),
        (b"not found", "404 Not Found", GseRefused),
        ({"code": 1641301, "message": "large"}, "413 Content Too Large", GseRefused),
        ({"code": 1000014, "message": "bad target"}, "200 OK", GseRefused),
        ({**OK, "code": -1}, "200 OK", GseRefused),
    ],
)
async def test_a_transfer_fails_by_what_a_caller_may_do(body: object, status: str, kind: type[GseFailure]) -> None:
    """Refused, surely not begun, or perhaps begun; asked for exactly once, whichever it is."""
    async with running_peer(answer_with(body, status=status)) as server, GseClient(gse_settings(server.url)) as client:
        with pytest.raises(GseFailure) as failure:
            await client.begin_transfer(make_order(make_hosts(1)))
        assert server.connections == 1
    assert type(failure.value) is kind


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (says(), GseOutcomeUnknown),  # hangs up without a word
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"), GseOutcomeUnknown),
        (says(b"garbage\r\n\r\n"), GseOutcomeUnknown),
        (drips(b"HTTP/1.1 200 OK\r\n\r\n"), GseOutcomeUnknown),  # never ends
    ],
)
async def test_a_transfer_without_a_whole_answer_may_have_begun(script: Script, kind: type[GseFailure]) -> None:
    """After the request was sent, silence says nothing about whether it was carried out."""
    async with (
        running_peer(script) as server,
        GseClient(gse_settings(server.url, answer_timeout_seconds=0.3)) as client,
    ):
        with pytest.raises(kind):
            await client.begin_transfer(make_order(make_hosts(1)))
        assert server.connections == 1


async def test_a_transfer_that_met_nobody_surely_did_not_begin() -> None:
    """No connection, no transfer."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no server listens there
        async with GseClient(gse_settings(f"http://127.0.0.1:{taken.getsockname()[1]}")) as client:
            with pytest.raises(GseUnavailable, match="could not be reached"):
                await client.begin_transfer(make_order(make_hosts(1)))


async def test_each_transfer_has_a_connection_of_its_own() -> None:
    """On a kept connection, its end looks the same as that of a transfer that was begun."""
    async with running_peer(answer_with(OK), keep_alive=True) as server, GseClient(gse_settings(server.url)) as client:
        for _ in range(3):
            await client.begin_transfer(make_order(make_hosts(1)))
        assert server.connections == 3


async def test_a_transfer_that_was_begun_and_cut_off_is_unknown() -> None:
    """GSE has the task, and the failure says that it may have."""
    async with running_gse_client(call_fault(GseAction.DROP, calls={GseCall.TRANSFER})) as (world, client):
        with pytest.raises(GseOutcomeUnknown):
            await client.begin_transfer(make_order(make_hosts(3)))
        assert len(world.tasks) == 1


async def ask(call: GseCall, client: GseClient, task_id: str) -> None:
    """Make this call."""
    match call:
        case GseCall.RESULTS:
            await client.get_results(task_id)
        case GseCall.TERMINATE:
            await client.request_termination(task_id, make_hosts(1))
        case _:
            await client.get_agent_states(["host-0"])


@pytest.mark.parametrize(
    "fault",
    [
        call_fault(GseAction.STATUS, status=500, code=1650000, times=2),
        call_fault(GseAction.STATUS, status=200, code=1650201, times=2),
        call_fault(GseAction.HTML, status=502, times=2),
        call_fault(GseAction.HTML, status=200, times=2),
        call_fault(GseAction.NO_CODE, times=2),
        call_fault(GseAction.RESET, times=2),
        call_fault(GseAction.RATE_LIMIT, seconds=0, times=2),
    ],
    ids=lambda rule: f"{rule.action}-{rule.status}",
)
@pytest.mark.parametrize("call", [GseCall.RESULTS, GseCall.TERMINATE, GseCall.STATES])
async def test_what_may_be_repeated_is(fault: Any, call: GseCall) -> None:
    """Two bad answers out of three cost nothing but time, and three come out as one kind of failure."""
    for times, comes_out in ((2, True), (3, False)):
        async with running_gse_client(fault.model_copy(update={"times": times, "calls": frozenset({call})})) as (
            world,
            client,
        ):
            task_id = await client.begin_transfer(make_order(make_hosts(1)))
            if comes_out:
                await ask(call, client, task_id)
            else:
                with pytest.raises(GseUnavailable):
                    await ask(call, client, task_id)
            assert world.calls[call] == 3


async def test_a_refusal_is_not_repeated() -> None:
    """A task that GSE has forgotten does not come back."""
    async with running_gse_client() as (world, client):
        with pytest.raises(GseRefused, match="there is no task") as failure:
            await client.get_results("GSE:of another life")
        assert world.calls[GseCall.RESULTS] == 1
    assert failure.value.code == 1000003


async def test_a_refusal_can_be_stored_whatever_is_in_it() -> None:
    """A code beyond 32 bits, or an id of the request that is no UTF-8, must not hold up the targets of a shard."""
    refusal = answer(json.dumps({"code": 2**40, "message": "no"}).encode(), "X-Bkapi-Request-Id: ??")
    script = says(refusal.replace(b"??", b"\xff\xfe"))
    async with running_peer(script) as server, GseClient(gse_settings(server.url)) as client:
        with pytest.raises(GseRefused) as refused:
            await client.begin_transfer(make_order(make_hosts(1)))

    assert refused.value.code == UNKNOWN_CODE
    assert str(2**40) in str(refused.value)
    assert str(refused.value).encode()


async def test_the_gateways_wish_to_wait_is_told() -> None:
    """Who is limited learns how long."""
    async with running_gse_client(call_fault(GseAction.RATE_LIMIT, seconds=7)) as (_, client):
        with pytest.raises(GseUnavailable) as failure:
            await client.begin_transfer(make_order(make_hosts(1)))
    assert failure.value.retry_after_seconds == 7


async def test_keys_and_tenant_go_with_each_call_and_nowhere_else() -> None:
    """The gateway gets what it wants; no failure's text holds the secret."""
    async with running_peer(answer_with({"code": 1640101, "message": "who?"})) as server:
        async with GseClient(gse_settings(server.url, tenant_id="t1")) as client:
            with pytest.raises(GseRefused) as failure:
                await client.begin_transfer(make_order(make_hosts(1)))
        head = server.heads[0].decode()
    assert '{"bk_app_code": "haulage", "bk_app_secret": "s3cret", "bk_username": "admin"}' in head
    assert "X-Bk-Tenant-Id: t1" in head
    assert "s3cret" not in str(failure.value) + repr(failure.value)


async def test_wrong_keys_are_refused() -> None:
    """What to check is said."""
    scenario = QUICK.model_copy(update={"app_code": "other", "app_secret": "x"})
    async with running_gse_client(scenario=scenario) as (world, client):
        with pytest.raises(GseRefused, match="Check the app code"):
            await client.begin_transfer(make_order(make_hosts(1)))
    assert world.refused_keys == 1


async def test_without_an_address_the_setting_is_named() -> None:
    """Without a base URL the failure names the setting."""
    async with GseClient(GseSettings()) as client:
        with pytest.raises(GseRefused, match="HAULAGE_GSE__BASE_URL"):
            await client.begin_transfer(make_order(make_hosts(1)))


async def test_records_that_say_nothing_are_left_out() -> None:
    """The rest of the answer counts."""
    entries = [
        {"error_code": 0, "content": {"dest_agent_id": "a", "mode": 1}},
        {"content": {"dest_agent_id": "b", "mode": 1}},
        None,
    ]
    async with (
        running_peer(answer_with({**OK, "data": {"result": entries}})) as server,
        GseClient(gse_settings(server.url)) as client,
    ):
        results = await client.get_results("GSE:1")
    assert set(results.downloads) == {("a", "")}


@pytest.mark.parametrize(
    ("source_folder", "place"),
    [("", FolderAndFileName("/cache/2", "abc")), ("/host/cache", FolderAndFileName("/host/cache/2", "abc"))],
)
def test_the_source_is_named_as_gse_knows_it(source_folder: str, place: FolderAndFileName) -> None:
    """A folder that is mounted elsewhere on the host is named by its path there."""
    client = GseClient(
        GseSettings(
            source_agent_id="s", source_container_id="docker://c", cache_folder="/cache", source_folder=source_folder
        )
    )

    assert client.source_agent == GseAgentWithUser("s", "c", "root")
    assert client.get_cached_file_location_for_agent(Path("/cache/2/abc")) == place
