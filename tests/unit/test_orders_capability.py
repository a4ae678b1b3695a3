"""Records of platforms: what is asked for covers exactly the window, and records that make no sense are refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api.http import validation
from api.orders.requests import PlatformSetupRequest
from domain.orders.capability import Capability
from domain.orders.config import REPEATED_HOUR_SECONDS
from domain.orders.declarations import TimeFormat, TimeNotation, TimeResolution
from domain.orders.known_platforms import KNOWN_PLATFORMS, PINDUODUO, SHOPIFY, TAOBAO, WOOCOMMERCE
from sims.platforms.dialects.plain import PLAIN, PLAIN_MILLISECONDS

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MOMENTS = st.integers(0, 4 * 10**9).map(lambda ms: NOON + timedelta(milliseconds=ms))
RESOLUTIONS = st.sampled_from(list(TimeResolution))


def with_ends(start: bool, end: bool, asked: TimeResolution, kept: TimeResolution) -> Capability:
    """A platform with such ends and such times."""
    query = PLAIN.query.model_copy(
        update={"start_inclusive": start, "end_inclusive": end, "time_format": TimeFormat(resolution=asked)}
    )
    return PLAIN.model_copy(
        update={"query": query, "rows": PLAIN.rows.model_copy(update={"time_format": TimeFormat(resolution=kept)})}
    )


def truncate(moment: datetime, resolution: timedelta) -> datetime:
    """As a platform keeps it."""
    return moment - (moment - NOON) % resolution


@given(st.booleans(), st.booleans(), RESOLUTIONS, RESOLUTIONS, MOMENTS, MOMENTS, st.lists(MOMENTS, max_size=20))
def test_no_instant_of_a_window_is_left_out(
    start: bool,
    end: bool,
    asked: TimeResolution,
    kept: TimeResolution,
    one: datetime,
    other: datetime,
    orders: list[datetime],
) -> None:
    """Whatever the ends and the resolutions are, an order of the window fits the query."""
    record = with_ends(start, end, asked, kept)
    low, high = sorted((truncate(one, timedelta(seconds=1)), truncate(other, timedelta(seconds=1))))
    first, last = record.compute_query_bounds(low, high)
    for order in (truncate(each, record.rows.time_format.smallest_step) for each in [*orders, low, high]):
        if low <= order < high:
            assert first <= order if start else first < order
            assert order <= last if end else order < last


@pytest.mark.parametrize(
    ("record", "first", "last"),
    [
        (TAOBAO, NOON, NOON + timedelta(seconds=599)),
        (SHOPIFY, NOON, NOON + timedelta(seconds=599)),
        (WOOCOMMERCE, NOON - timedelta(seconds=1), NOON + timedelta(seconds=600)),
        (PLAIN_MILLISECONDS, NOON, NOON + timedelta(seconds=600)),
    ],
)
def test_no_more_is_asked_for_than_needed(record: Capability, first: datetime, last: datetime) -> None:
    """Neighbours share a second only where orders have finer times than can be named."""
    assert record.compute_query_bounds(NOON, NOON + timedelta(seconds=600)) == (first, last)


@pytest.mark.parametrize(
    ("time_format", "text"),
    [
        (TimeFormat(), "2026-03-29T12:00:00Z"),
        (TimeFormat(zone_minutes=-300, resolution=TimeResolution.MILLISECOND), "2026-03-29T07:00:00.250-05:00"),
        (TimeFormat(form=TimeNotation.NAIVE), "2026-03-29T12:00:00"),
        (TimeFormat(form=TimeNotation.SPACED, zone_minutes=480), "2026-03-29 20:00:00"),
        (TimeFormat(form=TimeNotation.EPOCH), "1774785600"),
        (TimeFormat(form=TimeNotation.EPOCH_MS, resolution=TimeResolution.MILLISECOND), "1774785600250"),
    ],
)
def test_moments_are_written_and_read_in_each_form(time_format: TimeFormat, text: str) -> None:
    """What was written reads as the same moment, cut to the resolution."""
    moment = NOON + timedelta(milliseconds=250)
    assert time_format.format_time(moment) == text
    assert time_format.build_time_parser()(text, moment) == truncate(moment, time_format.smallest_step)


@pytest.mark.parametrize("text", ["2026-03-29T12:00:00", "yesterday", ""])
def test_a_moment_that_tells_no_zone_is_none(text: str) -> None:
    """Where its form has one: to guess it could shift orders out of their windows."""
    with pytest.raises(ValueError, match=r"zone|isoformat"):
        TimeFormat().build_time_parser()(text, NOON)


@pytest.mark.parametrize("kind", KNOWN_PLATFORMS)
def test_known_records_survive_as_json(kind: str) -> None:
    """They can be stored, shown and sent."""
    assert Capability.model_validate_json(KNOWN_PLATFORMS[kind].model_dump_json()) == KNOWN_PLATFORMS[kind]


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ("shopify", {"status": "any"}),
        ("woocommerce", {"status": "any"}),
        ("pinduoduo", {"order_status": "5", "refund_status": "5", "is_lucky_flag": "0"}),
    ],
)
def test_no_state_of_an_order_is_left_to_a_default(kind: str, states: dict[str, str]) -> None:
    """A platform that lists only open orders unless it is asked for all would hide the others from every check."""
    assert states.items() <= KNOWN_PLATFORMS[kind].query.parameters.items()


def test_the_newest_end_stays_behind_the_clock() -> None:
    """Pinduoduo answers nothing that is younger than three minutes."""
    assert PINDUODUO.compute_latest_answerable_window_end(NOON + timedelta(seconds=7.5)) == NOON - timedelta(
        seconds=173
    )


BERLIN = TimeFormat(form=TimeNotation.SPACED, zone="Europe/Berlin")
BACK = datetime(2026, 10, 25, 1, tzinfo=UTC)
"""When clocks are put back there from three to two: the hour before and the one after are told alike."""
HOUR = timedelta(hours=1)
LOCAL = PLAIN.model_copy(update={"query": PLAIN.query.model_copy(update={"time_format": BERLIN})})


@pytest.mark.parametrize("minutes", range(-130, 131, 10))
def test_a_query_leaves_out_no_order_of_an_repeated_hour(minutes: int) -> None:
    """However the platform reads such a bound: by its text, as its first time or as its second."""
    start = BACK + timedelta(minutes=minutes)
    end = start + timedelta(minutes=10)
    first, last = LOCAL.compute_query_bounds(start, end)
    written = [datetime.fromisoformat(BERLIN.format_time(each)) for each in (first, last)]
    for second in range(0, 600, 30):
        order = start + timedelta(seconds=second)
        told = datetime.fromisoformat(BERLIN.format_time(order))
        assert written[0] <= told <= written[1]
        for fold in (0, 1):
            since, until = (each.replace(tzinfo=BERLIN.timezone, fold=fold).astimezone(UTC) for each in written)
            assert since <= order <= until
    assert last - first <= timedelta(seconds=REPEATED_HOUR_SECONDS + 600)
    assert last <= max(end, BACK + HOUR), "it lies in the time to come, which a platform may refuse"


def test_a_query_for_a_part_of_a_window_asks_for_no_more() -> None:
    """Where a bound lies in an repeated hour as well: it would find orders that the window left out."""
    window = BACK - timedelta(minutes=70), BACK + timedelta(minutes=20)
    first, last = LOCAL.compute_query_bounds(*window)
    for minutes in range(90):
        start, end = LOCAL.compute_query_bounds(window[0] + timedelta(minutes=minutes), window[1])
        assert first <= start < end == last


@pytest.mark.parametrize("minutes", range(-70, 80, 10))
def test_an_repeated_hour_is_asked_for_when_it_is_over(minutes: int) -> None:
    """A slice that were complete after its first half would lack the second."""
    now = BACK + timedelta(minutes=minutes)
    is_over = not BACK - HOUR <= now < BACK + HOUR
    end = LOCAL.compute_latest_answerable_window_end(now)
    assert end == now if is_over else end <= BACK - HOUR


@pytest.mark.parametrize(
    ("asked_at", "moment"),
    [
        (BACK - timedelta(minutes=10), BACK - timedelta(minutes=30)),
        (BACK + timedelta(minutes=20), BACK - timedelta(minutes=30)),
        (BACK + timedelta(minutes=40), BACK + timedelta(minutes=30)),
    ],
)
def test_a_time_that_is_told_twice_is_the_later_one_that_is_over(asked_at: datetime, moment: datetime) -> None:
    """So that a copy that was modified in the second half never seems older than one of the first."""
    assert BERLIN.build_time_parser()("2026-10-25 02:30:00", asked_at) == moment


def test_a_local_time_that_names_its_zone_is_read_by_it() -> None:
    """The declared zone is that of times that name none."""
    beijing = TimeFormat(form=TimeNotation.NAIVE, zone_minutes=480).build_time_parser()
    assert beijing("2026-03-29T12:00:00Z", NOON) == beijing("2026-03-29T20:00:00", NOON) == NOON


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"paging": {**PLAIN.paging.model_dump(), "size": 2_000}}, "at most 1000"),
    ({"paging": {**PLAIN.paging.model_dump(), "parameter": ""}}, "the name of its parameter"),
    ({"paging": {**PLAIN.paging.model_dump(), "kind": "cursor"}}, "needs the path `next`"),
    ({"paging": {**PLAIN.paging.model_dump(), "direction": "forward"}}, "direction"),
    ({"total": {"value": "$.n", "header": "X"}}, "either by `value` or by `header`"),
    ({"rows": {**PLAIN.rows.model_dump(), "id": "id"}}, "is not understood"),
    ({"rows": {**PLAIN.rows.model_dump(), "list": "$.total"}}, "one place"),
    ({"errors": {"rules": [{"meaning": "busy"}]}}, "names statuses, codes or a pattern"),
    ({"errors": {"wait_pattern": "wait a minute"}}, "has no group"),
    ({"errors": {"wait_pattern": "wait (some"}}, "is no regular expression"),
    ({"errors": {"rules": [{"meaning": "busy", "pattern": "*"}]}}, "is no regular expression"),
    ({"colour": "blue"}, "colour"),
    ({"rate": {"per_second": math.inf}}, "too many"),
    ({"rate": {"per_second": 1e-300}}, "more than a year"),
    ({"query": {**PLAIN.query.model_dump(), "window_max_seconds": 1e300}}, "window_max_seconds"),
    ({"query": {**PLAIN.query.model_dump(), "newest_seconds": math.inf}}, "newest_seconds"),
    ({"rows": {**PLAIN.rows.model_dump(), "time_format": {"form": "naive", "zone_minutes": 1_440}}}, "zone_minutes"),
    ({"rows": {**PLAIN.rows.model_dump(), "time_format": {"form": "naive", "zone": "Europe/Nowhere"}}}, "no zone"),
    ({"rows": {**PLAIN.rows.model_dump(), "time_format": {"form": "naive", "zone": "../../etc/passwd"}}}, "zone"),
    ({"rows": {**PLAIN.rows.model_dump(), "time_format": {"form": "epoch", "zone": "Europe/Berlin"}}}, "send one"),
    ({"rows": {**PLAIN.rows.model_dump(), "time_format": {"form": "epoch", "resolution": "millisecond"}}}, "not finer"),
    ({"access": {"signing": "header"}}, "needs the name of the header"),
    ({"access": {"signing": "header", "header": "X-Key\r\nX-Other"}}, "header"),
    ({"access": {"signing": "sorted_md5", "key_parameter": "key"}}, "needs the names"),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_record_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    """With a sentence that says why."""
    with pytest.raises(ValidationError, match=words):
        Capability.model_validate({**PLAIN.model_dump(), **change})


def test_what_is_wrong_with_a_record_is_said_as_of_any_request() -> None:
    """Each fault with its place in the record, what was sent and what is allowed."""
    record = PLAIN.model_dump(mode="json", exclude_none=True)
    record["rate"]["per_second"] = 0
    record["rows"]["version"] = "version"
    record["query"]["feild"] = "modified"
    setup = {"project_id": "p", "kind": "plain", "shop": "s", "base_url": "https://example.com", "capability": record}
    with pytest.raises(ValidationError) as refusal:
        PlatformSetupRequest.model_validate_json(json.dumps(setup), strict=True)

    assert {(each.path, each.message) for each in validation.describe_errors(refusal.value, PlatformSetupRequest)} == {
        (
            "capability.rate.per_second",
            "0 is outside the numbers above 0; choose a value in that range.",
        ),
        ("capability.query.feild", "there is no such field; did you mean field?"),
        (
            "capability.rows.version",
            (
                "The path 'version' is not understood from its character 1 on. Write $ for the whole answer, then "
                ".name, ['any name'] or [0] for each step."
            ),
        ),
    }
