"""Who pushes: Pub/Sub, known by the token that it signs, or by the secret in the address that it was given."""

from __future__ import annotations

from aiohttp import web

from clients.http import GuardedClient
from clients.pubsub import NotPubSub, Signers
from domain.faults import Denied
from infra import log
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
        """Let a push in that shows a right token, whatever else it shows: proxies on its way add headers of their own.

        Raises:
            Denied: It shows no token, or wrong ones only.
            ConnectionError: Its token could not be checked, and it shows no other one that is right.
        """
        reasons: list[str] = []
        unchecked: ConnectionError | None = None
        for token in _list_tokens(request):
            try:
                await self._signers.check(token)
            except NotPubSub as reason:
                reasons.append(str(reason))
            except ConnectionError as error:
                unchecked = error
            else:
                return
        if unchecked is not None:
            raise unchecked
        # Why is for the operator alone: who guesses learns nothing from it.
        log.get(__name__).warning("push_refused", reason="; ".join(reasons), credentials=len(reasons))
        raise Denied("push_refused", "This push shows no token that was agreed on.", HINT)


PUSHERS = web.AppKey("pushers", Pushers)


def _list_tokens(request: web.Request) -> list[str]:
    """Return all tokens that a push shows; a header that holds no bearer token counts as an empty token.

    Google cannot be told a header, so the secret may stand in the address, which no log of ours shows. It comes first:
    to know it takes no look at Google's keys.
    """
    headers = request.headers.getall("Authorization", [])
    return [*request.query.getall("token", []), *map(_read_bearer, headers)] or [""]


def _read_bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
