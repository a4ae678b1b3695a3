"""What histories, clients and scripts rely on is listed, and a change of it is seen."""

from __future__ import annotations

import pytest

from tests.support import wire_names

KINDS = {
    "workflow OrderSlice: signal end_pause": "a signal",
    "workflow OrderSlice: input.job.window.start is AwareDatetime": "a field of an input",
    "activity order_read: input.settings.retries is int": "a field of an activity",
    "domain.orders.names.build_cycle_schedule_id → order-cycle:{platform}": "the format of an id",
    "search attribute HaulageState": "a search attribute",
    "code quota_exceeded": "a code",
    "GET /v1/ping: health_ping()": "a route",
    "setting HAULAGE_ORDERS__SERVE_SECONDS": "a setting",
    "haulage migrate": "a command",
}


def test_the_list_is_that_of_the_code() -> None:
    """`python -m tests.support.wire_names` renews it."""
    assert wire_names.PAGE.read_text() == wire_names.build_page()


@pytest.mark.parametrize("line", KINDS)
def test_every_kind_of_name_is_listed(line: str) -> None:
    """One of each, so that none is left out."""
    assert line in wire_names.PAGE.read_text().splitlines()
