"""Access tokens that renew themselves, and token endpoints on their bad days."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from clients.http import SharedRenewingToken
from clients.platforms import (
    AttemptTimeUsedUp,
    CredentialsRefused,
    PlatformBusy,
    PlatformConnector,
    ReplayableAnswerLog,
    credentials,
)
from clients.platforms.credentials import AccessTokensByCredentials
from domain.orders.access import ClientAuthentication, Credentials, TokenRenewal
from domain.orders.capability import Capability
from sims.platforms import checker, login
from sims.platforms.dialects.base import Reply
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults
from tests.support.platforms import SMALL_PAGES, RunningConnector, newest_copies, running_connector

ORDERS: dict[str, Any] = {"orders": 3_000, "span_seconds": 3_600, "login": True}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "RETRY_PAUSES_SECONDS", (0.0, 0.0))


def renewing(**fields: Any) -> Capability:
    """The plain record with a token endpoint."""
    renewal = TokenRenewal.model_validate({"url": login.PATH, **fields})
    return PLAIN.model_copy(update={**SMALL_PAGES, "access": PLAIN.access.model_copy(update={"renewal": renewal})})


async def read_by(here: RunningConnector, connector: PlatformConnector) -> bool:
    """Whether a connector reads some minutes without a fault."""
    window = here.window(600)
    pages = [page async for page in connector.iterate_pages(window, await connector.fetch_row_count(window))]
    return checker.check(here.truth(window), newest_copies(pages)).is_clean


@pytest.mark.parametrize("client", list(ClientAuthentication))
async def test_a_token_is_fetched_once_for_all_slices(client: ClientAuthentication) -> None:
    """Two that begin at once wait for the same answer, and a later one has it."""
    async with running_connector(renewing(client=client), **ORDERS, faults=PlatformFaults(login_slow_ms=200)) as here:
        both = await asyncio.gather(*(read_by(here, here.again(ReplayableAnswerLog())) for _ in range(2)))
        third = await read_by(here, here.connector)
        assert [*both, third] == [True, True, True]
        assert here.platform.login.answers == {200: 1}
        assert here.platform.calls["401"] == 0


async def test_a_token_that_dies_in_the_middle_of_a_walk_is_fetched_again_once() -> None:
    """Whatever its end point had said of its life; the walk goes on where it was."""
    async with running_connector(renewing(), **ORDERS, faults=PlatformFaults(token_requests=3)) as here:
        assert await read_by(here, here.connector)
        assert here.platform.calls["401"] >= 1
        assert here.platform.login.answers == {200: here.platform.calls["401"] + 1}


async def test_a_token_whose_life_nobody_tells_is_good_until_it_is_refused() -> None:
    """Its record may say how long that is."""
    async with running_connector(
        renewing(), **ORDERS, faults=PlatformFaults(login_silent=True, token_requests=4)
    ) as here:
        assert await read_by(here, here.connector)
        assert here.platform.login.answers[200] == here.platform.calls["401"] + 1 > 1
    short = renewing(lifetime_seconds=1e-6)
    # The loop's clock counts milliseconds: a life that is shorter ends with an answer that takes some.
    async with running_connector(short, **ORDERS, faults=PlatformFaults(login_silent=True, slow_ms=5)) as here:
        assert await read_by(here, here.connector)
        assert here.platform.calls["401"] == 0
        assert here.platform.login.answers[200] >= here.platform.calls["told"]


async def test_a_token_is_fetched_anew_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of an hour; of a short life a tenth."""
    token, fetched, now = SharedRenewingToken(), list[str](), 1_000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def fetch() -> tuple[str, float]:
        fetched.append(f"token-{len(fetched)}")
        return fetched[-1], 3_600.0 if len(fetched) == 1 else 100.0

    told = []
    for moment in (1_000.0, 4_539.0, 4_541.0, 4_630.0, 4_632.0):
        now = moment
        told.append(await token.get_or_fetch(None, fetch))
    assert told == ["token-0", "token-0", "token-1", "token-1", "token-2"]


async def test_all_who_wait_for_a_token_hear_how_that_ended_and_the_next_asks_anew() -> None:
    """One slow refusal is not waited for by each in turn; who is cancelled takes nothing from the others."""
    token, began, go = SharedRenewingToken(), list[int](), asyncio.Event()

    async def fetch() -> tuple[str, float]:
        began.append(1)
        await go.wait()
        if len(began) == 1:
            raise PlatformBusy("It is away.")
        return "good", 3_600.0

    waiting = [asyncio.create_task(token.get_or_fetch(None, fetch)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    go.set()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, PlatformBusy, PlatformBusy]
    assert await token.get_or_fetch(None, fetch) == "good"
    assert await token.get_or_fetch("another", fetch) == "good"
    assert len(began) == 2


def test_tokens_of_other_credentials_are_others() -> None:
    """While a file is being replaced, slices with the old and the new one do not take each other's; few are kept."""
    shared = AccessTokensByCredentials()
    every = [Credentials(key="k", refresh_token=SecretStr(f"r{number}")) for number in range(credentials.KEPT_MAX + 1)]
    first = shared.get_token(every[0])
    assert shared.get_token(every[0].model_copy()) is first
    assert all(shared.get_token(each) is not first for each in every[1:])
    assert shared.get_token(every[0]) is not first


@pytest.mark.parametrize(("errors", "is_told"), [(2, False), (3, True)])
async def test_an_end_point_with_a_bad_moment_is_asked_again(errors: int, is_told: bool) -> None:
    """Three times; then it is busy, which is no refusal of the credentials."""
    async with running_connector(renewing(), **ORDERS, faults=PlatformFaults(login_errors=errors)) as here:
        if is_told:
            with pytest.raises(PlatformBusy, match="token endpoint answered 500, server_error"):
                await here.read(here.window(600))
        assert await read_by(here, here.connector)
        assert here.platform.login.answers == {500: errors, 200: 1}


async def test_an_end_point_that_does_not_answer_in_time_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own, short time."""
    monkeypatch.setattr(credentials, "ANSWER_TIMEOUT_SECONDS", 0.05)
    async with running_connector(renewing(), **ORDERS, faults=PlatformFaults(login_slow_ms=2_000)) as here:
        with pytest.raises(PlatformBusy, match="token endpoint cannot be reached"):
            await here.read(here.window(600))
        assert here.platform.calls["401"] == 0


@pytest.mark.parametrize("is_renewal", [False, True], ids=["first token", "renewal"])
async def test_a_slow_end_point_takes_no_longer_than_the_attempt_has(is_renewal: bool) -> None:
    """The attempt would be ended from outside, without what it received; another one has the same token."""
    faults = PlatformFaults(token_requests=3 if is_renewal else None)
    async with running_connector(renewing(), **ORDERS, faults=faults) as here:
        window = here.window(600)
        if is_renewal:
            await here.connector.fetch_row_count(window)
        slow = faults.model_copy(update={"login_slow_ms": 3_000})
        here.platform.set(here.platform.scenario.model_copy(update={"faults": slow}))
        here.connector.budget.until = (began := time.monotonic()) + 0.3
        with pytest.raises(AttemptTimeUsedUp):
            await read_by(here, here.connector)
        assert time.monotonic() - began < 2.5
        await here.again(ReplayableAnswerLog()).fetch_row_count(window)
        assert here.platform.login.answers == {200: 1 + is_renewal}


async def test_a_refused_refresh_token_is_refused_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for once, and the fault has no secret, though the end point repeats them."""
    async with running_connector(renewing(), **ORDERS, faults=PlatformFaults(login_refused=True)) as here:
        with pytest.raises(CredentialsRefused, match="400, invalid_grant: The refresh token … is not valid") as refused:
            await here.read(here.window(600))
        assert here.platform.login.answers == {400: 1}
        told = str(refused.value) + "".join(capsys.readouterr())
    assert "refresh_token` in its credentials" in told
    assert here.platform.login.refresh_token not in told


async def test_no_token_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in the log of a renewal, nor among the answers that are kept for another attempt."""
    async with running_connector(renewing(), **ORDERS, faults=PlatformFaults(token_requests=3)) as here:
        await here.read(here.window(600))
        issued = [*here.platform.tokens.issued]
        told = "".join(capsys.readouterr()).encode() + zlib.decompress(here.connector.answer_log.encode())
    assert b"platform_token_renewed" in told
    assert issued
    assert not [secret for secret in [*issued, here.platform.login.refresh_token] if secret.encode() in told]


async def test_an_end_point_that_rotates_is_noticed_at_the_next_renewal() -> None:
    """We keep no secrets of others: the refresh token that it gives is not used, and the alarm is the usual one."""
    faults = PlatformFaults(login_rotates=True, token_requests=3)
    async with running_connector(renewing(), **ORDERS, faults=faults) as here:
        fixed = here.platform.login.credentials

        async def read_credentials(renew: bool) -> Credentials:
            return Credentials.model_validate(fixed)

        here.connector._client._credentials._read_credentials = read_credentials
        with pytest.raises(CredentialsRefused, match="invalid_grant"):
            await here.read(here.window(3_000))
        assert here.platform.login.answers == {200: 1, 400: 1}


async def test_a_private_end_point_is_not_asked() -> None:
    """It gets the account's secrets, so the guard's rules hold; the sentence names its setting."""
    async with running_connector(renewing(url="http://10.0.0.1/token"), **ORDERS) as here:
        with pytest.raises(CredentialsRefused, match="HAULAGE_GUARD__ALLOW"):
            await here.read(here.window(600))


@pytest.mark.parametrize(
    ("status", "body", "failure", "words"),
    [
        (200, b"<html>Sorry</html>", PlatformBusy, "no JSON object"),
        (200, b'{"token": "x"}', CredentialsRefused, "without an access_token"),
        (200, b'{"access_token": "a\\nb"}', CredentialsRefused, "without an access_token"),
        (200, b'{"error": "invalid_client"}', CredentialsRefused, "200, invalid_client"),
        (200, b'{"error": {"code": 7}, "access_token": "x"}', CredentialsRefused, "answered 200"),
        (302, b"", CredentialsRefused, "answered 302"),
        (400, b'{"error": "temporarily_unavailable"}', PlatformBusy, "temporarily_unavailable"),
        (429, b"", PlatformBusy, "answered 429"),
    ],
)
async def test_odd_answers_of_an_end_point_are_told_apart(
    status: int, body: bytes, failure: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may pass, and what an operator must mend."""
    async with running_connector(renewing(), **ORDERS) as here:
        monkeypatch.setattr(login.Login, "answer", lambda *_: Reply(body, status))
        with pytest.raises(failure, match=words):
            await here.read(here.window(600))


@pytest.mark.parametrize(
    ("told", "seconds"),
    [(3_600, 3_600), ("60", 60), (1.5, 1.5), (None, 9), ("soon", 9), (0, 9), (-1, 9), ([], 9), ("inf", 9)],
)
def test_a_life_is_read_leniently(told: Any, seconds: float) -> None:
    """What makes no sense says nothing."""
    assert credentials._parse_positive_lifetime_or_default(told, 9) == seconds


async def test_a_refresh_token_that_nobody_can_use_is_told() -> None:
    """Rather than going on with no token at all."""
    async with running_connector(PLAIN, **ORDERS) as here:
        with pytest.raises(CredentialsRefused, match="Declare `access"):
            await here.read(here.window(600))


async def test_a_token_of_the_operator_is_shown_as_it_is() -> None:
    """Where the credentials hold no refresh token, no end point is asked."""
    async with running_connector(renewing(), **{**ORDERS, "login": False}) as here:
        assert await read_by(here, here.connector)
        assert here.platform.login.answers == {}


@pytest.mark.parametrize("error", ["null", '""', "false"])
async def test_an_end_point_may_say_that_there_is_no_error(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some name the field beside each token."""
    async with running_connector(renewing(), **ORDERS) as here:
        issued = here.platform.tokens.issue()
        body = f'{{"access_token": "{issued}", "error": {error}, "expires_in": 3600}}'.encode()
        monkeypatch.setattr(login.Login, "answer", lambda *_: Reply(body))
        assert await read_by(here, here.connector)


@pytest.mark.parametrize("token", ["good\n", "go\r\nod", "go\0od"])
async def test_a_token_that_no_header_carries_is_refused_credentials(token: str, tmp_path: Path) -> None:
    """In a sentence that says where it is, not as an internal error of each attempt."""
    (tmp_path / "shop.json").write_text(json.dumps({"token": token}))
    with pytest.raises(CredentialsRefused, match="`token` of the credentials 'shop' holds a line break"):
        await credentials.build_credentials_reader(tmp_path, "shop")(False)
