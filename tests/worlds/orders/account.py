"""The account at the platform of a world: which tokens are good, until when, and how they are renewed."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.worlds.answers import Answer
from tests.worlds.orders.asking import read_token
from tests.worlds.orders.world import World

KEY, SECRET = "key-1", "s3cret"


def tell(content: object) -> Answer:
    """Answer with a value as JSON."""
    return Answer(json.dumps(content).encode())


def refuse_with(status: int, code: str, message: str) -> Answer:
    """Answer with an error."""
    return Answer(json.dumps({"error": {"code": code, "message": message}}).encode(), status)


class Account:
    """Knows whose requests are let in."""

    def __init__(self, world: World, fired: set[str]) -> None:
        self.world = world
        self.fired = fired
        self.generation = 1
        self.is_healed = False
        self._refresh = 1
        self._uses = 0

    @property
    def credentials(self) -> dict[str, str]:
        """What a request is signed with that is good now."""
        if self.world.is_so("signing", "basic"):
            return {"key": KEY, "secret": self._token}
        if self.world.is_so("signing", "renewed"):
            return {"key": KEY, "secret": SECRET, "refresh_token": f"refresh-{self._refresh}"}
        return {"key": KEY, "secret": SECRET, "token": self._token}

    @property
    def _token(self) -> str:
        return f"token-{self.generation}"

    def renew(self, form: Mapping[str, str]) -> Answer:
        """Give an access token for a refresh token."""
        good = form.get("refresh_token") == f"refresh-{self._refresh}" and form.get("client_secret") == SECRET
        if self._is_withdrawn or not good:
            self.fired |= {"token_rotates"} if self.world.has("token_rotates") else set()
            return Answer(b'{"error":"invalid_grant"}', 400)
        given = {"access_token": self._token, "expires_in": 3_600}
        if self.world.has("token_rotates") and not self.is_healed:
            self._refresh += 1
            given["refresh_token"] = f"refresh-{self._refresh}"
        return tell(given)

    def refuse(self, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer | None:
        """Refuse a request that shows no good token; None where it may pass."""
        if read_token(self.world, SECRET, query, headers) != self._token or self._is_withdrawn:
            return refuse_with(401, "expired", "the token is not valid")
        flaw = self.world.flaw("token_expires", "token_rotates")
        self._uses += 1
        if flaw is None or self.is_healed or self._uses <= 6 + flaw.dial % 5:
            return None
        if flaw.name == "token_expires":
            self.fired.add(flaw.name)
        self._uses, self.generation = 0, self.generation + 1
        return refuse_with(401, "expired", "the token has expired")

    @property
    def is_dead(self) -> bool:
        """Whether what is laid down is good no more, or will not be once it is used again."""
        is_used_up = self.world.has("token_rotates") and self._refresh > 1 and not self.is_healed
        return is_used_up or self._is_withdrawn

    @property
    def _is_withdrawn(self) -> bool:
        """Whether no token is good any more."""
        flaw = self.world.flaw("token_expires")
        return flaw is not None and not flaw.passes and self.generation > 1 and not self.is_healed
