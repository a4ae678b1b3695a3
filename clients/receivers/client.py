"""A client of receivers: posts an event once, and says how that was answered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from clients.http import GuardedClient
from domain.faults import SourceFault
from domain.webhooks import deliveries
from domain.webhooks.deliveries import Answered

ANSWER_EXCERPT_BYTES: Final = 4096


class ReceiverClient:
    """Posts events to the addresses that users gave."""

    def __init__(self, http: GuardedClient, timeout_seconds: float) -> None:
        self._http = http
        self._timeout_seconds = timeout_seconds

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], moment: datetime) -> Answered:
        """Post once; a receiver that cannot be reached is an answer, too.

        Args:
            moment: What a Retry-After header with a date is counted from.
        """
        try:
            answer = await self._http.post(
                url,
                body=body,
                headers=headers,
                excerpt_bytes=ANSWER_EXCERPT_BYTES,
                timeout_seconds=self._timeout_seconds,
            )
        except SourceFault as fault:
            # The hint is for sources of data; the message tells all there is about a receiver.
            error = deliveries.bounded(fault.record.message)
            return Answered(error=error, hopeless=fault.record.code == "address_denied")
        return Answered(
            status=answer.status,
            error=deliveries.describe(answer.status, answer.body),
            retry_after_seconds=deliveries.retry_after_seconds(answer.headers.get("Retry-After"), moment),
        )
