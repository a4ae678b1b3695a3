"""Webhooks by the standard: signatures that its own library accepts, bodies that stay small, and the ladder."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import ValidationError
from standardwebhooks import Webhook, WebhookVerificationError
from temporalio.testing import ActivityEnvironment

from activities.webhooks import PURGE_BATCH, WebhookActivities, WebhookAndSharedRecordHousekeeping
from clients.http import HttpResponse
from domain import webhooks
from domain.secrets import SealedText
from domain.webhooks import DeliveryState, ReceiverResponse, WebhookDeliveryInput, WebhookEvent, WebhookEventSubject
from infra.settings import Settings, WebhookSettings
from stores.tables.shared import Delivery

if TYPE_CHECKING:
    from services.services import Services

SECRET = webhooks.format_secret(bytes(range(36)))
OTHER = webhooks.format_secret(bytes(range(1, 37)))
DELIVERY = "msg_" + "0" * 32
LADDER = WebhookSettings().retry_pauses_seconds
NOW = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=3_000),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=6,
)


def event(data: dict[str, Any]) -> WebhookEvent:
    """Something that happened."""
    return WebhookEvent(type="download.succeeded", timestamp=NOW, data=data)


def test_the_vector_of_the_standard() -> None:
    """The signature of the standard's own example is the one that the standard gives."""
    moment = datetime.fromtimestamp(1614265330, UTC)
    headers = webhooks.build_signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", moment, b'{"test": 2432232314}', ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-timestamp"] == "1614265330"


@given(st.binary(max_size=200), st.binary(min_size=24, max_size=64))
def test_any_body_and_secret_verify(body: bytes, random: bytes) -> None:
    """What we sign, the standard's library accepts."""
    payload = json.dumps(body.decode("latin-1")).encode()
    secret = webhooks.format_secret(random)

    headers = webhooks.build_signed_headers(DELIVERY, datetime.now(UTC), payload, [secret])

    assert Webhook(secret).verify(payload, headers) == body.decode("latin-1")


def test_while_secrets_rotate_each_of_them_verifies() -> None:
    """A receiver that has not changed its secret yet and one that has both accept the message."""
    headers = webhooks.build_signed_headers(DELIVERY, datetime.now(UTC), b"{}", [SECRET, OTHER])

    assert Webhook(SECRET).verify(b"{}", headers) == Webhook(OTHER).verify(b"{}", headers) == {}


def _change_signature(signature: str) -> str:
    """Its first character another one; of the last one some bits do not count."""
    first = signature[3]
    return signature[:3] + ("B" if first == "A" else "A") + signature[4:]


@pytest.mark.parametrize(
    "forge",
    [
        lambda headers, body: (headers, body + b" "),
        lambda headers, body: (headers, body.replace(b"1", b"2")),
        lambda headers, body: (headers | {"webhook-id": "msg_" + "1" * 32}, body),
        lambda headers, body: (headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}, body),
        lambda headers, body: (headers | {"webhook-timestamp": "now"}, body),
        lambda headers, body: (headers | {"webhook-signature": _change_signature(headers["webhook-signature"])}, body),
        lambda headers, body: (
            headers | {"webhook-signature": headers["webhook-signature"].replace("v1,", "v2,")},
            body,
        ),
        lambda headers, body: (headers | {"webhook-signature": ""}, body),
        lambda headers, body: (webhooks.build_signed_headers(DELIVERY, datetime.now(UTC), body, [OTHER]), body),
        lambda headers, body: (
            webhooks.build_signed_headers(DELIVERY, datetime.now(UTC) - timedelta(minutes=6), body, [SECRET]),
            body,
        ),
        lambda headers, body: (
            webhooks.build_signed_headers(DELIVERY, datetime.now(UTC) + timedelta(minutes=6), body, [SECRET]),
            body,
        ),
        lambda headers, body: ({name: value for name, value in headers.items() if name != "webhook-id"}, body),
    ],
)
def test_nothing_forged_verifies(forge: Any) -> None:
    """Body, id, time and signature hold each other: whatever is changed, the message is refused."""
    body = b'{"rows":1}'
    headers = webhooks.build_signed_headers(DELIVERY, datetime.now(UTC), body, [SECRET])
    assert Webhook(SECRET).verify(body, headers) == {"rows": 1}

    forged_headers, forged_body = forge(headers, body)

    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(forged_body, forged_headers)


def test_a_secret_is_made_of_enough_bytes_and_masked_without_them() -> None:
    """24 to 64 random bytes, as the standard asks; the mask gives four characters away."""
    assert 24 <= webhooks.SECRET_BYTES <= 64
    assert SECRET.startswith("whsec_")
    assert not SECRET.endswith("=")
    assert webhooks.mask_secret(SECRET[-4:]) == f"whsec_…{SECRET[-4:]}"


def test_the_body_has_the_standard_s_members() -> None:
    """Type, time in UTC and data, in this order; Unicode as it is."""
    moment = datetime(2026, 11, 20, 16, 0, tzinfo=timezone(timedelta(hours=8)))

    body = WebhookEvent(type="download.failed", timestamp=moment, data={"file_name": "订单.csv"}).body

    assert body.decode() == (
        '{"type":"download.failed","timestamp":"2026-11-20T08:00:00Z","data":{"file_name":"订单.csv"}}'
    )


@given(st.dictionaries(st.text(max_size=20), json_values, max_size=6))
def test_a_body_is_always_small(data: dict[str, Any]) -> None:
    """Whatever sentences it holds, a body stays below 20 kB, and what is short stays whole."""
    body = event(data).body

    assert len(body) < webhooks.BODY_MAX_BYTES
    whole = event(data).model_dump_json().encode()
    assert body == whole or len(whole) >= webhooks.BODY_MAX_BYTES


def test_long_texts_give_way_before_figures() -> None:
    """A sentence of a source is cut where it must be; the rest of the event is untouched."""
    data = {"task_id": "dl_1", "rows": 10**15, "message": "字" * 8_000, "hint": "\x00" * 8_000}

    told = json.loads(event(data).body)["data"]

    assert (told["task_id"], told["rows"]) == ("dl_1", 10**15)
    assert told["message"] == "字" * (len(told["message"]) - 1) + "…"


def test_an_event_of_too_many_fields_is_our_mistake() -> None:
    """Numbers cannot be cut, so that such an event is refused with a sentence."""
    with pytest.raises(ValueError, match="too many fields"):
        _ = event({str(number): number for number in range(3_000)}).body


@pytest.mark.parametrize("wrong", ["msg_1", "msg_" + "0" * 31 + ".", "0" * 36])
def test_an_order_s_id_can_be_signed(wrong: str) -> None:
    """An id with a dot could shift what is signed, so that only ours are taken."""
    with pytest.raises(ValidationError):
        WebhookDeliveryInput(
            delivery_id=wrong,
            project_id="p",
            owner=WebhookEventSubject(system="downloads", id="dl_1"),
            url=SealedText(token=""),
            event=event({}),
        )


def test_the_ladder_is_the_standard_s() -> None:
    """At once, then after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h; then it has failed."""
    hours = [pause / 3600 for pause in LADDER[3:]]
    assert (LADDER[:3], hours) == ([5, 300, 1800], [2, 5, 10, 14, 20, 24])

    taken = [
        webhooks.decide_state_and_pause_after_attempt(number, ReceiverResponse(status=500), LADDER, 0.0)
        for number in range(1, 11)
    ]

    assert [progress.pause_seconds for progress in taken] == [*LADDER, None]
    assert [progress.state for progress in taken] == [DeliveryState.PENDING] * 9 + [DeliveryState.FAILED]


@given(st.integers(1, 9), st.floats(0, 1))
def test_jitter_only_spreads(number: int, chance: float) -> None:
    """No attempt comes before its time, nor more than a tenth after it."""
    pause = webhooks.decide_state_and_pause_after_attempt(
        number, ReceiverResponse(error="gone"), LADDER, chance
    ).pause_seconds

    assert pause is not None
    assert LADDER[number - 1] <= pause <= LADDER[number - 1] * 1.1 + 1e-9


@pytest.mark.parametrize(
    ("status", "state"),
    [(code, DeliveryState.SUCCEEDED) for code in (200, 201, 202, 204, 299)]
    + [(410, DeliveryState.DISABLED)]
    + [
        (code, DeliveryState.PENDING)
        for code in (100, 199, 300, 301, 302, 304, 307, 308, 400, 401, 404, 409, 429, 500, 503)
    ],
)
def test_only_2xx_is_success(status: int, state: DeliveryState) -> None:
    """Redirects are failures, and 410 ends it."""
    assert webhooks.decide_state_and_pause_after_attempt(1, ReceiverResponse(status=status), LADDER, 0.0).state is state
    assert (webhooks.describe_error_response(status, b"") is None) == (state is DeliveryState.SUCCEEDED)


def test_what_cannot_go_better_is_not_tried_again() -> None:
    """An address that we never call is called no more often for waiting."""
    progress = webhooks.decide_state_and_pause_after_attempt(
        1, ReceiverResponse(error="private", is_final=True), LADDER, 0.0
    )

    assert (progress.state, progress.pause_seconds) == (DeliveryState.FAILED, None)


@pytest.mark.parametrize(
    ("status", "asked", "pause"),
    [(429, 60, 60), (502, 60, 60), (503, 60, 60), (504, 60, 60), (429, 1, 5), (429, 10**9, 86_400), (500, 60, 5)],
)
def test_a_busy_receiver_is_given_the_time_it_asks_for(status: int, asked: float, pause: float) -> None:
    """Retry-After lengthens a pause, within a day, and never shortens it."""
    answered = ReceiverResponse(status=status, retry_after_seconds=asked)

    assert webhooks.decide_state_and_pause_after_attempt(1, answered, LADDER, 0.0).pause_seconds == pause


@given(st.integers(100, 599), st.binary(max_size=2_000))
def test_what_a_receiver_says_is_shown_safely(status: int, body: bytes) -> None:
    """Short, on one line, and without characters that a database or a page could choke on."""
    said = webhooks.describe_error_response(status, body) or ""

    assert said.isprintable()
    assert len(said) <= webhooks.ERROR_MAX_CHARACTERS


async def test_idempotency_keys_are_purged_though_the_audit_log_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The activity fails all the same, and is repeated."""
    purged: list[int] = []

    async def fail(*_: object) -> int:
        raise ConnectionError("away")

    async def purge(_database: object, _before: datetime, limit: int) -> int:
        purged.append(limit)
        return 0

    monkeypatch.setattr("stores.audit.purge_audit_entries", fail)
    monkeypatch.setattr("stores.projects.purge_idempotency_keys", purge)
    services = cast("Services", SimpleNamespace(database=None, settings=Settings()))
    housekeeping = WebhookAndSharedRecordHousekeeping(services)
    with pytest.raises(ConnectionError):
        await ActivityEnvironment().run(housekeeping.purge_audit_log_and_idempotency_keys)
    assert purged == [PURGE_BATCH]


async def test_an_attempt_shows_that_it_is_alive_until_it_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database is slow after the post, Temporal would have it posted again."""
    beats: list[float] = []
    saving: list[float] = []
    fields: dict[str, Any] = {"project_id": "prj_1", "url": "sealed", "body": "{}", "pending_since": NOW}
    delivery = Delivery(delivery_id=DELIVERY, state=DeliveryState.PENDING, **fields)

    async def load(*_: object, **__: object) -> Delivery:
        return delivery

    async def load_secrets(*_: object) -> list[str]:
        return [SECRET]

    async def save(*_: object, **__: object) -> None:
        saving.append(time.monotonic())
        await asyncio.sleep(1.5)

    async def post(*_: object, **__: object) -> HttpResponse:
        return HttpResponse(200, CIMultiDictProxy(CIMultiDict()), b"")

    monkeypatch.setattr("stores.webhooks.load_delivery_to_attempt", load)
    monkeypatch.setattr("stores.webhooks.load_or_create_signing_secrets", load_secrets)
    monkeypatch.setattr("stores.webhooks.save_attempt_and_update_delivery", save)
    activities = WebhookActivities(
        cast("Any", None),
        cast("Any", SimpleNamespace(post_and_read_excerpt=post)),
        cast("Any", SimpleNamespace(open=lambda _: "http://127.0.0.1/")),
        WebhookSettings(),
    )
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *_: beats.append(time.monotonic())
    attempt = webhooks.WebhookAttemptInput(delivery_id=DELIVERY, number=1)
    done = await environment.run(activities.attempt_delivery, attempt)

    assert done.state is DeliveryState.SUCCEEDED
    assert beats[-1] > saving[0] + 0.5
