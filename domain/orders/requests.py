"""What requests name beside a window: one order, the version of the interface, and a fresh access token."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Self
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from domain.orders.jsonpath import Path

ID: Final = "{id}"
VERSION: Final = "{version}"
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"

_GAP = re.compile(r"\{[^{}]*\}?|\}")


def _readable(path: str) -> str:
    Path.parse(path)
    return path


TEXT_MAX_CHARACTERS: Final = 2_000
LISTED_MAX: Final = 100
"""Parameters of a request, rules for errors, and codes of one."""

Text = Annotated[str, Field(max_length=TEXT_MAX_CHARACTERS)]
Parameters = Annotated[dict[str, Text], Field(max_length=LISTED_MAX)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
JsonPath = Annotated[str, AfterValidator(_readable), Field(max_length=TEXT_MAX_CHARACTERS, examples=["$.data.orders"])]
Seconds = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """A part of what is declared of a platform."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RateLimit(Record):
    """What all our workers together may ask of one account."""

    per_second: float = Field(gt=0, description="requests of all workers together")
    burst: Count = Field(default=1, ge=1, description="requests that may come at once after a pause")
    per_day: Count | None = Field(default=None, ge=1, description="requests within 24 hours, if they are limited")


class Detail(Record):
    """A second call for each order, where the list tells only a part of it."""

    path: Text = Field(description="may hold {id}, where the order's id is put in, percent-encoded")
    parameters: Parameters = Field(default={}, description="sent with it")
    id_parameter: Text = Field(default="", description="name of the parameter with the id, where the path has none")
    row: JsonPath = Field(description="where the answer tells the order, or the part that goes `into` it")
    into: Text = Field(
        default="", description="name of the listed order's field that takes it; by default it is the order, whole"
    )
    next: JsonPath | None = Field(default=None, description="where the token of the next page of a part is told")
    next_parameter: Text = Field(default="", description="name of the parameter with that token")
    rate: RateLimit | None = Field(
        default=None, description="where the platform counts these calls by themselves; by default with all others"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        require_gaps(self.path, {ID, VERSION})
        if (ID in self.path) == bool(self.id_parameter):
            raise ValueError("a detail call names the order either by {id} in its path or by `id_parameter`")
        if (self.next is None) == bool(self.next_parameter):
            raise ValueError("pages of a detail call need both `next` and `next_parameter`")
        if self.rate is not None and self.rate.per_day is not None:
            raise ValueError("the quota of a day counts all calls; it stands in `rate` of the platform")
        if self.next is not None and not self.into:
            raise ValueError("only a part that goes `into` an order comes in pages")
        return self

    def path_of(self, order_id: str) -> str:
        """Where one order is asked for; raises ValueError where its id cannot stand in a path."""
        if ID in self.path and order_id in (".", ".."):
            raise ValueError(f"The id {order_id!r} would lead to another path.")
        return self.path.replace(ID, quote(order_id, safe=""))

    def parameters_of(self, order_id: str, token: str | None = None) -> dict[str, str]:
        """What goes with it, for the first page or the one that a token leads to."""
        named = {self.id_parameter: order_id} if self.id_parameter else {}
        return {**self.parameters, **named, **({} if token is None else {self.next_parameter: token})}


class ApiVersion(Record):
    """Which version of its interface a platform is asked by; the setting `api_version` says another one."""

    value: Text = Field(pattern=VERSION_PATTERN, description="where nothing else is set")
    parameter: Text = Field(default="", description="name of the parameter with it")
    header: Text = Field(default="", description="name of the header with it; else it is {version} in the paths")


class ClientShown(StrEnum):
    """How a token end point is shown who asks."""

    BODY = "body"
    """Client id and secret stand among the form's fields."""
    BASIC = "basic"
    """As a user and a password."""


class Renewal(Record):
    """Where access tokens are fetched with a refresh token: OAuth 2.0, as in Login with Amazon."""

    url: Text = Field(
        pattern=r"^(https?://[^/?#\s]+)?/[^?#\s]*$", description="of the token end point; a path begins at `base_url`"
    )
    parameters: Parameters = Field(default={}, description="further fields of the form, such as a scope")
    client: ClientShown = Field(
        default=ClientShown.BODY,
        description="where client id and secret stand: in the `body`, or as `basic` authentication",
    )
    lifetime_seconds: Seconds = Field(default=3_600, description="how long a token is good, where nobody says")


def require_gaps(path: str, allowed: set[str]) -> None:
    """Refuse a path with other gaps than these; raises ValueError."""
    for gap in _GAP.findall(path):
        if gap not in allowed:
            raise ValueError(f"{path!r} holds {gap!r}; only {', '.join(sorted(allowed))} can be put in there")
