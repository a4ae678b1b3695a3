"""What goes wrong between publisher and subscriber, drawn from a seed."""

from __future__ import annotations

from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field


class Scenario(BaseModel):
    """One Pub/Sub. By default it delivers in order, once, and at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    reorder: int = Field(default=1, ge=1, description="out of so many waiting messages the next one is drawn")
    duplicate: float = Field(default=0.0, ge=0, le=1, description="share of messages that come again after their ack")
    delay: float = Field(default=0.0, ge=0, le=1, description="share of messages that come late")
    delay_seconds: float = Field(default=0.2, ge=0)
    drop_acks: float = Field(default=0.0, ge=0, le=1, description="share of acks that get lost, each time")
    hang_acks: bool = Field(default=False, description="acknowledgements wait unheard until this is over")
    spoil: float = Field(default=0.0, ge=0, le=1, description="share of messages whose data is no base64 when pulled")
    fail: float = Field(default=0.0, ge=0, le=1, description="share of calls that are answered 503")
    wait_seconds: float = Field(default=1.0, ge=0, description="how long a pull waits for messages")
    push_calls: int = Field(default=16, ge=1, description="pushes of a subscription at a time")
    push_retry_seconds: float = Field(default=0.05, ge=0, description="until a push that failed is repeated")

    def rolls(self, share: float, *what: object) -> bool:
        """Whether a share takes this in; the same seed always takes the same."""
        return share > 0 and self.draw(*what) < share

    def draw(self, *what: object) -> float:
        """A number from 0 to 1 that hangs on the seed and on nothing else."""
        digest = blake2b("/".join(map(str, (self.seed, *what))).encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64
