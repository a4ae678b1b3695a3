"""Who pushes: Pub/Sub, known by the token that it signs, or by the secret in the address that it was given."""

from __future__ import annotations

from aiohttp import web

from domain.faults import Denied
from infra import log
from infra.http import GuardedClient
from infra.pubsub import NotPubSub, Signers
from infra.pubsub_settings import PushSettings

HINT = (
    "Let the subscription push with a token for HAULAGE_ADDRESSES__PUSH__AUDIENCE by the account "
    "HAULAGE_ADDRESSES__PUSH__EMAIL, or with HAULAGE_ADDRESSES__PUSH__SECRET behind `?token=` in its endpoint."
)


class Pushers:
    """Lets in what Pub/Sub pushes, and nobody else."""

    def __init__(self, http: GuardedClient, settings: PushSettings) -> None:
        self._signers = Signers(http, settings)

    async def admit(self, request: web.Request) -> None:
        """Let a push in.

        Raises:
            Denied: It shows no token, or the wrong one.
        """
        try:
            await self._signers.check(_token(request))
        except NotPubSub as reason:
            # Why is for the operator alone: who guesses learns nothing from it.
            log.get(__name__).warning("push_refused", reason=str(reason))
            raise Denied("push_refused", "This push shows no token that was agreed on.", HINT) from None


PUSHERS = web.AppKey("pushers", Pushers)


def _token(request: web.Request) -> str:
    """Google cannot be told a header, so the secret may stand in the address, which no log of ours shows."""
    headers = request.headers.getall("Authorization", [])
    scheme, _, token = (headers[0] if len(headers) == 1 else "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return request.query.get("token", "")
