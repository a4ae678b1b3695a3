"""From a workflow's id to the console's page that shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from domain import webhooks
from domain.addresses import names as addresses
from domain.addresses.messages import Topic
from domain.downloads import names as downloads
from domain.orders import names as orders
from domain.orders.windows import TimeWindow
from domain.secrets import SealedText
from domain.tasks import names as tasks
from domain.tasks import names as tasks_names
from domain.transfers.models import FileByBizAppAndPath
from domain.transfers.names import TransferJobKey
from domain.webhooks import WebhookDeliveryInput, WebhookEvent, WebhookEventSubject
from infra import console_links, housekeeping
from infra.settings import ApiSettings
from systems import SYSTEMS

RUN = "-2026-11-20T15:00:00Z"
WINDOW = TimeWindow(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1))
SLICE = "/console/orders/platforms/shop-1/slices/20260101T000000Z%3A20260101T010000Z"


@pytest.mark.parametrize(
    ("workflow_id", "page"),
    [
        (downloads.build_download_workflow_id("prj_1", "dl_2"), "/console/downloads/dl_2?project=prj_1"),
        (
            str(TransferJobKey(FileByBizAppAndPath(biz_id=2, app_id=7, path="/etc/app.conf"), 4)),
            "/console/transfers/jobs/AsyncDownloadJob%3A2%3A7%3A%2Fetc%2Fapp.conf%3A4",
        ),
        (orders.build_cycle_schedule_id("shop-1"), "/console/orders/platforms/shop-1"),
        (orders.build_cycle_schedule_id("shop-1") + RUN, "/console/orders/platforms/shop-1"),
        (orders.build_slice_workflow_id("shop-1", WINDOW), SLICE),
        (orders.build_slice_workflow_id("shop-1", WINDOW, "redo-17"), SLICE),
        (orders.build_backfill_workflow_id("shop-1", WINDOW), "/console/orders/platforms/shop-1?tab=backfills"),
        (orders.build_backfill_workflow_id("shop-1", WINDOW, "2"), "/console/orders/platforms/shop-1?tab=backfills"),
        (orders.build_report_workflow_id("shop-1", "2026-01-01"), "/console/orders/platforms/shop-1"),
        (orders.WATCH + RUN, "/console/orders"),
        (addresses.CYCLE_SCHEDULE + RUN, "/console/addresses"),
        (addresses.build_intake_workflow_id(Topic.DELETE), "/console/addresses"),
        (addresses.CHECK_SCHEDULE + RUN, "/console/addresses/logical-deletes"),
        (addresses.build_purge_workflow_id("0a"), "/console/addresses/logical-deletes/purges/0a"),
        (addresses.build_comparison_workflow_id("20260101T000000Z"), "/console/addresses/comparisons/20260101T000000Z"),
        (
            tasks_names.build_lane_workflow_id((tasks.build_type_id("prj_1", "video"), 3)),
            "/console/tasks/types/video?project=prj_1",
        ),
        *((housekeeping.build_schedule_id(system) + RUN, "/console") for system in (*SYSTEMS, "webhooks")),
        ("somebody-else-s", None),
    ],
)
def test_every_workflow_has_a_page(workflow_id: str, page: str | None) -> None:
    """Runs of schedules, redone slices and foreign workflows included."""
    assert console_links.build_console_path_of_workflow(workflow_id) == page


@pytest.mark.parametrize(
    ("owner", "page"),
    [
        (WebhookEventSubject(system=downloads.SYSTEM, id="dl_2"), "/console/downloads/dl_2?project=prj_1"),
        (WebhookEventSubject(system=orders.SYSTEM, id="shop-1"), "/console/orders/platforms/shop-1"),
    ],
)
def test_a_webhook_leads_to_what_it_is_about(owner: WebhookEventSubject, page: str) -> None:
    """Its id does not say that, so the page is found by what the workflow is started with."""
    event = WebhookEvent(type="x", timestamp=WINDOW.start, data={})
    url = SealedText(token="sealed")
    delivery = WebhookDeliveryInput(
        delivery_id=f"msg_{'0' * 32}", project_id="prj_1", owner=owner, url=url, event=event
    )
    workflow_id = webhooks.build_delivery_workflow_id(delivery.project_id, delivery.delivery_id)
    assert console_links.build_console_path_of_workflow(workflow_id, [delivery]) == page


def test_nobody_is_led_to_a_console_whose_address_is_not_known() -> None:
    """A link without a host would lead to the engine's own pages."""
    workflow_id = tasks_names.build_lane_workflow_id((tasks.build_type_id("prj_1", "video"), 3))
    assert console_links.build_markdown_console_link("", workflow_id) is None
    assert console_links.build_markdown_console_link("https://haulage.example.com/", workflow_id) == (
        "[Open in the console](https://haulage.example.com/console/tasks/types/video?project=prj_1)"
    )


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:8080"),
        ({}, ""),  # a worker's, on another machine
        ({"host": "127.0.0.1", "port": 0}, ""),
        ({"host": "0.0.0.0"}, ""),  # noqa: S104 - what containers listen on
        ({"host": "0.0.0.0", "public_base": "https://haulage.example.com"}, "https://haulage.example.com"),  # noqa: S104
    ],
)
def test_the_console_is_where_browsers_reach_it(settings: dict[str, str | int], base: str) -> None:
    """An address that only we listen on is nobody's link."""
    assert ApiSettings.model_validate(settings).console_base == base
