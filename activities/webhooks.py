"""The activities of webhooks: save a delivery, attempt it, and purge old ones."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio import activity

from clients.http import GuardedClient, parse_retry_after
from domain.faults import SourceFault
from domain.redaction import SecretRedactor
from domain.secrets import SealedText
from domain.webhooks import (
    PURGE,
    PURGE_RECORDS,
    DeliveryState,
    DeliveryStateAfterAttempt,
    ReceiverResponse,
    WebhookAttemptInput,
    WebhookDeliveryInput,
    build_signed_headers,
    decide_state_and_pause_after_attempt,
    describe_error_response,
    truncate_text,
)
from infra import heartbeats, log, metrics
from infra.database import Database
from infra.housekeeping import remove_in_batches_within_time
from infra.secrets import SealUnreadableError, SecretSealer
from infra.settings import WebhookSettings
from services.services import Services
from stores import audit, projects, webhooks

PURGE_BATCH = 1_000
EXCERPT_BYTES = 4096


class WebhookActivities:
    """Activities of a delivery."""

    def __init__(
        self, database: Database, http: GuardedClient, sealer: SecretSealer, settings: WebhookSettings
    ) -> None:
        self._database = database
        self._http = http
        self._sealer = sealer
        self._settings = settings

    @activity.defn(name="webhook_save_delivery")
    async def insert_delivery_or_make_pending(self, delivery: WebhookDeliveryInput) -> DeliveryState:
        """Insert the delivery, or make it pending again; return its state."""
        clear_url: str | None = None
        # What no key opens is saved all the same: nothing else has the event, and its attempts say what is wrong.
        with suppress(SealUnreadableError):
            # The event may have waited in a history while `haulage reseal` passed over the rows.
            url = self._sealer.reseal(delivery.url) or delivery.url
            delivery, clear_url = delivery.model_copy(update={"url": url}), self._sealer.open(url)
        state = await webhooks.insert_or_reset_delivery(self._database, delivery, clear_url)
        if state is DeliveryState.DISABLED:
            metrics.WEBHOOKS_ENDED.labels(state).inc()
        return state

    @activity.defn(name="webhook_attempt")
    async def attempt_delivery(self, attempt: WebhookAttemptInput) -> DeliveryStateAfterAttempt:
        """Post the event once, and save the attempt with the resulting state of the delivery.

        A worker that dies between the two posts again; the receiver recognizes the repetition by `webhook-id`. Nothing
        is posted where the receiver answered 410 to another delivery meanwhile.
        """
        # Also while the database is slow: an attempt that is taken for lost is made again, though it was posted.
        async with heartbeats.send_heartbeats_during_block():
            return await self._post_and_save_unless_disabled(attempt)

    async def _post_and_save_unless_disabled(self, attempt: WebhookAttemptInput) -> DeliveryStateAfterAttempt:
        delivery = await webhooks.load_delivery_to_attempt(
            self._database, attempt.delivery_id, is_redelivery=attempt.redelivery
        )
        if delivery.state == DeliveryState.DISABLED and not attempt.redelivery:
            metrics.WEBHOOKS_ENDED.labels(DeliveryState.DISABLED).inc()
            return DeliveryStateAfterAttempt(state=DeliveryState.DISABLED, number=attempt.number - 1)
        began = time.perf_counter()
        response = await self._open_seals_and_post(
            delivery.project_id, delivery.delivery_id, SealedText(token=delivery.url), delivery.body.encode()
        )
        seconds = time.perf_counter() - began
        pauses = self._settings.retry_pauses_seconds
        progress = decide_state_and_pause_after_attempt(attempt.number, response, pauses, random.random())
        await webhooks.save_attempt_and_update_delivery(
            self._database,
            attempt.delivery_id,
            activity.info().started_time,
            seconds,
            progress,
            is_redelivery=attempt.redelivery,
        )
        if attempt.redelivery and progress.state is DeliveryState.SUCCEEDED:
            await webhooks.enable_receiver(self._database, delivery.endpoint)
        log.get(__name__).info(
            "webhook_attempted",
            receiver=delivery.receiver,
            status=progress.status,
            state=progress.state,
            pause_seconds=progress.pause_seconds,
        )
        _count_attempt_and_log_end(
            progress,
            delivery.pending_since,
            delivery_id=delivery.delivery_id,
            project_id=delivery.project_id,
            type=delivery.event_type,
            attempts=delivery.attempts + 1,
        )
        return progress

    async def _open_seals_and_post(
        self, project_id: str, delivery_id: str, sealed_url: SealedText, body: bytes
    ) -> ReceiverResponse:
        """Post the event once, without a retry; return the response, or the error if there is none."""
        now = datetime.now(UTC)
        try:
            secrets = await webhooks.load_or_create_signing_secrets(self._database, self._sealer, project_id)
            url = self._sealer.open(sealed_url)
        except SealUnreadableError as error:
            # Another worker may have the key, or it is put back before the last attempt.
            log.get(__name__).error("webhook_seal_unreadable", delivery_id=delivery_id, error=str(error))
            return ReceiverResponse(error=f"Nothing was sent to the receiver. {error}")
        headers = build_signed_headers(delivery_id, now, body, secrets)
        try:
            answer = await self._http.post_and_read_excerpt(
                url,
                body=body,
                headers=headers,
                excerpt_bytes=EXCERPT_BYTES,
                timeout_seconds=self._settings.timeout_seconds,
            )
        except SourceFault as fault:
            # The fault's hint is about sources of rows; its message is enough for a receiver.
            message = truncate_text(fault.record.message)
            return ReceiverResponse(error=message, is_final=fault.record.code == "address_denied")
        said = describe_error_response(answer.status, answer.body)
        return ReceiverResponse(
            status=answer.status,
            # A receiver may repeat its own address, which may hold a secret.
            error=said and SecretRedactor(url).redact(said),
            retry_after_seconds=parse_retry_after(answer.headers, now),
        )


def _count_attempt_and_log_end(progress: DeliveryStateAfterAttempt, pending_since: datetime, **fields: object) -> None:
    """Count an attempt; if it was the last, count the end of the delivery, and log it in one line with these fields."""
    outcome = "unanswered" if progress.status is None else f"{progress.status // 100}xx"
    metrics.WEBHOOK_ATTEMPTS.labels(outcome).inc()
    if progress.pause_seconds is not None:
        return
    seconds = (datetime.now(UTC) - pending_since).total_seconds()
    metrics.WEBHOOKS_ENDED.labels(progress.state).inc()
    metrics.WEBHOOK_SECONDS.labels(progress.state).observe(seconds)
    log.get(__name__).info("webhook_ended", state=progress.state, seconds=seconds, **fields)


class WebhookAndSharedRecordHousekeeping:
    """Purges deliveries and the records that all systems share, past their retention."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._retention = timedelta(days=services.settings.webhooks.kept_days)
        self._audit_retention = timedelta(days=services.settings.api.audit_kept_days)
        self._claim_retention = timedelta(days=services.settings.api.idempotency_kept_days)

    @activity.defn(name=PURGE)
    async def purge_expired_deliveries(self) -> int:
        """Delete deliveries past their retention in batches; return how many."""
        before = datetime.now(UTC) - self._retention
        purged = await remove_in_batches_within_time(
            partial(webhooks.purge_ended_deliveries, self._database, before), PURGE_BATCH
        )
        if purged:
            log.get(__name__).info("deliveries_purged", deliveries=purged)
        return purged

    @activity.defn(name=PURGE_RECORDS)
    async def purge_audit_log_and_idempotency_keys(self) -> int:
        """Delete actions of the audit log and idempotency keys past their retention; return how many."""
        now = datetime.now(UTC)
        actions = partial(audit.purge_audit_entries, self._database, now - self._audit_retention)
        claims = partial(projects.purge_idempotency_keys, self._database, now - self._claim_retention)
        purged, failures = 0, list[Exception]()
        for purge in (actions, claims):
            try:
                purged += await remove_in_batches_within_time(purge, PURGE_BATCH)
            except Exception as error:  # noqa: BLE001 - raised below: one kind is purged though the other cannot be
                failures.append(error)
        if purged:
            log.get(__name__).info("shared_records_purged", records=purged)
        if failures:
            raise failures[0]
        return purged
