"""Defects of webhooks."""

from __future__ import annotations

from tests.planted.defect import Defect

DEFECTS = (
    Defect(
        "a-delivery-is-not-repeated",
        "webhooks",
        "domain/webhooks.py",
        "if response.is_final or number > len(pauses):",
        "if response.is_final or number > 0:",
        ("tests/unit/test_webhooks.py::test_only_2xx_is_success",),
    ),
    Defect(
        "a-signature-forgets-its-time",
        "webhooks",
        "domain/webhooks.py",
        'signed = b".".join((delivery_id.encode(), timestamp.encode(), body))',
        'signed = b".".join((delivery_id.encode(), body))',
        ("tests/unit/test_webhooks.py::test_nothing_forged_verifies",),
    ),
    Defect(
        "a-secret-is-logged",
        "webhooks",
        "activities/webhooks.py",
        "            receiver=delivery.receiver,\n",
        "            receiver=self._sealer.open(SealedText(token=delivery.url)),\n",
        ("tests/faults/test_promises.py::test_secrets_are_nowhere_in_clear",),
    ),
    Defect(
        "a-delivery-dies-with-its-download",
        "webhooks",
        "workflows/webhooks/delivery.py",
        "            parent_close_policy=ParentClosePolicy.ABANDON,\n",
        "            parent_close_policy=ParentClosePolicy.TERMINATE,\n",
        ("tests/workflow/test_webhook_plan.py", "-k", "outlives"),
    ),
    Defect(
        "all-projects-wait-in-one-line",
        "webhooks",
        "workflows/webhooks/handle.py",
        "return Priority(fairness_key=delivery.project_id)",
        'return Priority(fairness_key="all")',
        ("tests/integration/test_webhooks.py::test_a_project_s_slow_receivers_do_not_hold_up_another_project",),
    ),
    Defect(
        "a-delivery-is-everybody-s",
        "webhooks",
        "stores/webhooks.py",
        "        col(Delivery.owner_id) == owner.id,\n",
        "",
        ("tests/integration/test_order_callbacks.py::test_what_an_administrator_was_sent_is_listed_and_sent_again",),
    ),
)
