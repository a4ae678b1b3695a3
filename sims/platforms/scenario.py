"""What a stand-in platform is asked to be: its orders, how they change, its limits and its faults, all by a seed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Kind = Literal["plain", "taobao", "pinduoduo", "shopify", "woocommerce", "amazon"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Changes(_Part):
    """What happens to orders after the beginning."""

    per_second: float = Field(default=0, ge=0, description="changes in a second of the platform's clock")
    per_page: float = Field(default=0, ge=0, lt=1, description="chance of a change before each page, again and again")
    created_share: float = Field(default=0.3, ge=0, le=1, description="of the changes; the others modify")
    in_window_share: float = Field(
        default=0.5, ge=0, le=1, description="of the modifications before a page, how many hit the window that is read"
    )
    late_share: float = Field(default=0, ge=0, le=1, description="of the changes, how many show up late")
    late_seconds: float = Field(default=60, ge=0, description="how late at most")


class Limits(_Part):
    """What the platform lets through, by a real clock."""

    per_second: float | None = Field(default=None, gt=0)
    burst: int = Field(default=1, ge=1)
    per_day: int | None = Field(default=None, ge=1)


class PlatformFaults(_Part):
    """What goes wrong, and how often."""

    errors: float = Field(default=0, ge=0, le=1, description="share of answers that are a 500")
    resets: float = Field(default=0, ge=0, le=1, description="share of answers that break off in the middle")
    busy: float = Field(default=0, ge=0, le=1, description="share of answers that ask to come back later")
    busy_seconds: float = 1
    only_first: int | None = Field(default=None, ge=0, description="so many requests go wrong at most, then none")
    token_requests: int | None = Field(default=None, ge=1, description="requests after which a token has expired")
    token_seconds: float | None = Field(
        default=None, gt=0, description="how long, by a real clock, a token of the token end point is good"
    )
    login_errors: int = Field(default=0, ge=0, description="the first answers of the token end point are a 500")
    login_slow_ms: int = Field(default=0, ge=0, description="how long the token end point takes")
    login_silent: bool = Field(default=False, description="it does not say how long a token is good")
    login_refused: bool = Field(default=False, description="it refuses the refresh token")
    login_rotates: bool = Field(default=False, description="each refresh token is good once, and another one is given")
    token_dead: bool = Field(default=False, description="no token is good, nor are newer ones")
    repeat_token_at: int | None = Field(default=None, ge=1, description="the page of a walk that leads to itself")
    page_token_seconds: float | None = Field(
        default=None, gt=0, description="amazon: after so long, by the platform's clock, a page's token leads nowhere"
    )
    total_off: int = Field(default=0, description="how far totals are wrong")
    clock_down: bool = Field(
        default=False, description="the time alone cannot be asked for, where that is a call of its own"
    )
    ignore_filter: bool = False
    ignore_page: bool = False
    page_cap: int | None = Field(default=None, ge=1, description="plain: so many rows on a page at most, in silence")
    drop_share: float = Field(default=0, ge=0, le=1, description="share of pages that leave a row out")
    slow_ms: int = Field(default=0, ge=0)


class PlatformScenario(_Part):
    """One platform, as one account sees it."""

    kind: Kind = "plain"
    seed: int = 0
    orders: int = Field(default=1_000, ge=0, le=5_000_000, description="at the beginning")
    start: AwareDatetime = Field(default=datetime(2026, 1, 1, tzinfo=UTC), description="when the first was created")
    span_seconds: int = Field(default=86_400, ge=1, description="from then until the clock's first moment")
    speed: float = Field(default=0, ge=0, description="seconds of the platform's clock in a real one; 0: it stands")
    skew_seconds: float | None = Field(
        default=None, description="the clock is the real one plus this, and runs with it; start and speed are ignored"
    )
    crowd_share: float = Field(default=0, ge=0, le=1, description="of the orders, how many share full crowd_seconds")
    crowd_seconds: int = Field(default=600, ge=1)
    milliseconds: bool = Field(default=False, description="plain: orders have finer times than can be asked for")
    odd_ids: bool = Field(default=False, description="plain: ids hold slashes, spaces, percent signs and more")
    login: bool = Field(default=False, description="tokens come from the token end point alone, for a refresh token")
    api_version: str | None = Field(default=None, description="plain, shopify: the only version that is answered")
    version_in: Literal["path", "query", "header"] = Field(default="path", description="plain: where it is read")
    rows_max: int | None = Field(default=None, ge=1, description="rows of a query that are told; by default the kind's")
    changes: Changes = Changes()
    limits: Limits = Limits()
    faults: PlatformFaults = PlatformFaults()
