"""The token end point: OAuth 2.0 with a refresh token, as in Login with Amazon, and its bad days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from sims.platforms.dialects.base import KEY, SECRET, Reply, json_reply
from sims.platforms.gate import Tokens
from sims.platforms.scenario import PlatformFaults

PATH: Final = "/auth/o2/token"
SECONDS: Final = 3_600


class Login:
    """Gives out access tokens for the refresh token that is good now."""

    def __init__(self) -> None:
        self.generation = 1
        self.answers: Counter[int] = Counter()

    @property
    def refresh_token(self) -> str:
        """The one that is good."""
        return f"refresh/{self.generation}+of this shop"

    @property
    def credentials(self) -> Mapping[str, str]:
        """What an account is opened with."""
        return {"key": KEY, "secret": SECRET, "refresh_token": self.refresh_token}

    def answer(self, form: Mapping[str, str], tokens: Tokens, faults: PlatformFaults) -> Reply:
        """A token, or why there is none."""
        reply = self._answer(form, tokens, faults)
        self.answers[reply.status] += 1
        return reply

    def _answer(self, form: Mapping[str, str], tokens: Tokens, faults: PlatformFaults) -> Reply:
        if self.answers[500] < faults.login_errors:
            return json_reply({"error": "server_error"}, 500)
        if form.get("grant_type") != "refresh_token":
            return json_reply({"error": "unsupported_grant_type"}, 400)
        if (form.get("client_id"), form.get("client_secret")) != (KEY, SECRET):
            return json_reply({"error": "invalid_client", "error_description": "Client authentication failed"}, 401)
        if faults.login_refused or form.get("refresh_token") != self.refresh_token:
            words = f"The refresh token {form.get('refresh_token')} is not valid."
            return json_reply({"error": "invalid_grant", "error_description": words}, 400)
        told: dict[str, Any] = {"access_token": tokens.issue(), "token_type": "bearer"}
        if not faults.login_silent:
            told["expires_in"] = faults.token_seconds or SECONDS
        if faults.login_rotates:
            self.generation += 1
            told["refresh_token"] = self.refresh_token
        return json_reply(told)
