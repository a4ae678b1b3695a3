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


_NONE = "This push shows no token that was agreed on."
_ONE_OF_SEVERAL = (
    "This push shows several credentials, in `Authorization` and behind `?token=`, and not each of them was agreed on. "
    "Leave out those that were not."
)


class Pushers:
    """Lets in what Pub/Sub pushes, and nobody else."""

    def __init__(self, http: GuardedClient, settings: PushSettings) -> None:
        self._signers = Signers(http, settings)

    async def admit(self, request: web.Request) -> None:
        """Let a push in.

        Raises:
            Denied: It shows no token, or a wrong one, alone or beside a right one.
        """
        shown = _tokens(request)
        try:
            for token in shown or [""]:
                await self._signers.check(token)
        except NotPubSub as reason:
            # Why is for the operator alone: who guesses learns nothing from it.
            log.get(__name__).warning("push_refused", reason=str(reason), credentials=len(shown))
            raise Denied("push_refused", _ONE_OF_SEVERAL if len(shown) > 1 else _NONE, HINT) from None


PUSHERS = web.AppKey("pushers", Pushers)


def _tokens(request: web.Request) -> list[str]:
    """All credentials that a push shows; a header that holds no bearer token counts as an empty token.

    Google cannot be told a header, so the secret may stand in the address, which no log of ours shows.
    """
    headers = request.headers.getall("Authorization", [])
    return [*map(_bearer, headers), *request.query.getall("token", [])]


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
