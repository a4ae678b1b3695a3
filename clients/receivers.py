"""The client of webhook receivers, the addresses that users give for events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from clients.http import GuardedClient, parse_retry_after
from domain.faults import SourceFault
from domain.webhooks import deliveries
from domain.webhooks.deliveries import ReceiverResponse

EXCERPT_BYTES: Final = 4096


class ReceiverClient:
    """Posts events to receivers."""

    def __init__(self, http: GuardedClient, timeout_seconds: float) -> None:
        self._http = http
        self._timeout_seconds = timeout_seconds

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], now: datetime) -> ReceiverResponse:
        """Post once, without a retry; return the response, or the error if the receiver cannot be reached.

        Args:
            now: The time from which a `Retry-After` header with a date is counted.
        """
        try:
            answer = await self._http.post_for_status(
                url,
                body=body,
                headers=headers,
                excerpt_bytes=EXCERPT_BYTES,
                timeout_seconds=self._timeout_seconds,
            )
        except SourceFault as fault:
            # The fault's hint is about sources of rows; its message is enough for a receiver.
            error = deliveries.shorten(fault.record.message)
            return ReceiverResponse(error=error, is_final=fault.record.code == "address_denied")
        return ReceiverResponse(
            status=answer.status,
            error=deliveries.describe_error(answer.status, answer.body),
            retry_after_seconds=parse_retry_after(answer.headers, now),
        )
