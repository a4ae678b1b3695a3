"""Push tokens as Google signs them, with a key of the stand-in's own."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://accounts.google.com"
KEY_ID = "sim"


class Signer:
    """One RSA key, made when it is first needed."""

    def __init__(self) -> None:
        self._made: rsa.RSAPrivateKey | None = None

    @property
    def key(self) -> rsa.RSAPrivateKey:
        """The private key."""
        if self._made is None:
            self._made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return self._made

    @property
    def public_keys(self) -> dict[str, Any]:
        """What Google publishes for everybody who checks a signature."""
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}

    def token(self, *, email: str, audience: str, **changes: Any) -> str:
        """A token for a push; `changes` replace claims."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": audience,
            "azp": "1",
            "sub": "1",
            "email": email,
            "email_verified": True,
            "iat": now,
            "exp": now + 3_600,
        }
        kept = {name: value for name, value in (claims | changes).items() if value is not None}
        return jwt.encode(kept, self.key, algorithm="RS256", headers={"kid": KEY_ID})
