"""Defects that each break one promise, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Defect:
    """One change of one file.

    Args:
        name: Says what goes wrong.
        system: Whose promise it breaks; `shared` where it is everybody's, `tests` where the suite itself is broken.
        text: Is in the file once.
        planted: Stands there instead.
        tests: Arguments of pytest: the part of the suite that should notice.
    """

    name: str
    system: str
    file: str
    text: str
    planted: str
    tests: tuple[str, ...]


DEFECTS = (
    Defect(
        "a-page-is-dropped",
        "downloads",
        "activities/downloads/fetching.py",
        "                yield page\n",
        "                if number != 3:\n                    yield page\n",
        ("tests/integration/test_downloads.py", "-k", "file_equals_source"),
    ),
    Defect(
        "a-text-is-drawn-over-the-next-row",
        "downloads",
        "domain/downloads/excel/body.py",
        "            line.begin(attributes)\n",
        '            line.begin("")\n',
        ("tests/unit/test_excel_wrapping.py",),
    ),
    Defect(
        "a-book-that-stays-one-has-any-size",
        "downloads",
        "activities/downloads/press.py",
        "            self._require_room(made.report.bytes)\n",
        "            pass\n",
        ("tests/integration/test_excel_downloads.py", "-k", "too_large"),
    ),
    Defect(
        "a-page-is-doubled",
        "downloads",
        "activities/downloads/fetching.py",
        "                yield page\n",
        "                yield page\n                if number == 3:\n                    yield page\n",
        ("tests/integration/test_downloads.py", "-k", "file_equals_source"),
    ),
    Defect(
        "a-short-page-passes",
        "downloads",
        "domain/downloads/plan.py",
        "if rows > most or (rows < most and self.exact and not goes_on):",
        "if rows > most:",
        ("tests/integration/test_downloads.py", "-k", "faults_that_stay"),
    ),
    Defect(
        "a-short-page-ends",
        "downloads",
        "activities/downloads/fetching.py",
        "if not page.rows and not page.goes_on:\n            return True",
        "if page.rows < self._extent.page_size and not page.goes_on:\n            return True",
        ("tests/worlds/test_downloads.py", "-k", "ends"),
    ),
    Defect(
        "pages-that-repeat-pass",
        "downloads",
        "domain/downloads/repeats.py",
        "ROWS_MIN: Final = 20\n",
        "ROWS_MIN: Final = 20_000\n",
        ("tests/worlds/test_downloads.py", "-k", "repeats"),
    ),
    Defect(
        "a-cut-off-first-page-ends-it",
        "downloads",
        "activities/downloads/source.py",
        "                pause = tries.pause_after(fault, self._rules)\n",
        "                is_first = page <= 0 and fault.record.code == 'source_cut_off'\n"
        "                pause = None if is_first else tries.pause_after(fault, self._rules)\n",
        ("tests/worlds/test_downloads.py", "-k", "cuts"),
    ),
    Defect(
        "headers-go-to-every-source",
        "downloads",
        "domain/downloads/request.py",
        '                "source_headers": source.source_headers,\n',
        '                "source_headers": next((t.source_headers for t in self.tables if t.source_headers), None),\n',
        ("tests/worlds/test_downloads.py", "-k", "headers"),
    ),
    Defect(
        "headers-are-shared-by-hosts",
        "downloads",
        "api/downloads/tables.py",
        "        if len(origins) > 1:\n",
        "        if not origins:\n",
        ("tests/worlds/test_downloads.py", "-k", "headers"),
    ),
    Defect(
        "a-secret-is-quoted",
        "downloads",
        "activities/downloads/source.py",
        "            fault.reword(self._redactor.strike(fault.record.message))\n",
        "",
        ("tests/integration/test_download_echoes.py",),
    ),
    Defect(
        "a-key-that-comes-twice-is-not-told",
        "downloads",
        "domain/downloads/shape.py",
        "repeated_keys.find(uneven, page.rows)",
        "[]",
        ("tests/unit/test_download_repeated_keys.py",),
    ),
    Defect(
        "a-fetcher-keeps-its-place",
        "downloads",
        "activities/downloads/source.py",
        "                if pause > KEPT_PLACE_SECONDS:\n",
        "                if pause > 3_600:\n",
        ("tests/integration/test_download_fairness.py",),
    ),
    Defect(
        "a-target-is-sent-twice",
        "transfers",
        "domain/transfers/shipment.py",
        "[item for item in self.unfinished if item.due_at is not None and item.due_at <= now]",
        "list(self.unfinished)",
        ("tests/unit/test_transfer_shipment.py", "tests/integration/test_transfers.py"),
    ),
    Defect(
        "the-cause-is-thrown-away",
        "transfers",
        "domain/transfers/shipment.py",
        "item.reason, item.code, item.message, item.due_at = state, reason, code, message, None",
        "item.reason, item.code, item.message, item.due_at = state, reason, None, '', None",
        ("tests/unit/test_transfer_shipment.py", "tests/integration/test_transfers.py"),
    ),
    Defect(
        "a-project-sends-what-is-not-opened-for-it",
        "transfers",
        "api/transfers/creating.py",
        "    await here.openings.check(call.project_id, file, consignment.user, consignment.folder, agent_ids)\n",
        "    del agent_ids\n",
        ("tests/integration/test_transfer_openings.py", "-k", "sends_only"),
    ),
    Defect(
        "a-failure-is-forgotten-at-the-deadline",
        "transfers",
        "domain/transfers/shipment.py",
        "            elif item.failed_message:\n",
        "            elif item.failed_message is None:\n",
        ("tests/integration/test_transfer_ends.py", "-k", "last_failure"),
    ),
    Defect(
        "what-is-cancelled-has-ended",
        "transfers",
        "activities/transfers/shipping.py",
        "        self._shipment.cancel(carried)\n",
        "        self._shipment.end(carried, _CANCELLED)\n",
        ("tests/integration/test_transfer_ends.py", "-k", "under_way"),
    ),
    Defect(
        "the-user-of-a-target-is-not-heeded",
        "transfers",
        "activities/transfers/shipping.py",
        "targets=[_agent(item, self._user) for item in items]",
        'targets=[_agent(item, "root") for item in items]',
        ("tests/worlds/test_transfer_options.py", "-k", "wish"),
    ),
    Defect(
        "one-lot-without-room-stops-a-group",
        "transfers",
        "domain/transfers/joining.py",
        "refused = [place for place, lot in enumerate(group.lots) if not self._take_lot(lot)]",
        "refused = [] if all([self._has_room_for(lot) and self._take_lot(lot) for lot in group.lots]) else refused",
        ("tests/unit/test_transfer_joining.py",),
    ),
    Defect(
        "a-shipper-that-was-replaced-writes",
        "transfers",
        "activities/transfers/shards.py",
        'if not str(held).endswith(" 1"):',
        "if False:",
        ("tests/integration/test_transfer_defects.py", "tests/integration/test_transfer_hosts.py"),
    ),
    Defect(
        "a-worker-taken-for-dead-commits",
        "orders",
        "activities/orders/steps.py",
        "        return row.holder == order.holder\n    return order.purpose is not Purpose.FIRST\n",
        "        return True\n    return True\n",
        ("tests/integration/test_order_fence.py",),
    ),
    Defect(
        "the-archive-does-not-know-who-ended-a-task",
        "tasks",
        "api/tasks/setting.py",
        "is_holder = setting.lease in (None, ended.lease)",
        "is_holder = bool(ended)",
        ("tests/integration/test_tasks.py", "-k", "archive_knows"),
    ),
    Defect(
        "a-reading-is-not-confirmed",
        "orders",
        "activities/orders/reading.py",
        "        if verdict is Verdict.AGAIN:\n            if self._tells_parts():",
        "        if False:\n            if self._tells_parts():",
        ("tests/integration/test_order_promises.py", "-k", "lies"),
    ),
    Defect(
        "complete-to-hides-a-hole",
        "orders",
        "domain/orders/marks.py",
        "reached = limit if first_open is None else min(first_open, limit)",
        "reached = limit",
        ("tests/unit/test_order_marks.py",),
    ),
    Defect(
        "an-acknowledgement-without-effect",
        "addresses",
        "haulage/address_module/applying.py",
        "        result = self._applied(operation)\n",
        "        result = _result(operation, Outcome.APPLIED)\n",
        ("tests/unit/test_address_module_once.py",),
    ),
    Defect(
        "an-operation-is-applied-again",
        "addresses",
        "haulage/address_module/applying.py",
        "if before := self._before(operation.op_id):",
        "if (before := self._before(operation.op_id)) and not before.op_id:",
        ("tests/unit/test_address_module_once.py",),
    ),
    Defect(
        "three-acknowledgements-are-enough",
        "addresses",
        "activities/addresses/settling.py",
        "= 'Y', false)\" for module in Module)",
        "= 'Y', false)\" for module in list(Module)[:3])",
        ("tests/integration/test_address_cycle.py",),
    ),
    Defect(
        "a-lease-is-not-looked-at",
        "tasks",
        "domain/tasks/book.py",
        "        if setting.lease is not None and setting.lease != task.lease:\n",
        "        if setting.lease is not None and setting.lease > task.lease:\n",
        ("tests/unit/test_task_lane.py", "tests/unit/test_task_lane_stateful.py"),
    ),
    Defect(
        "a-lease-never-ends",
        "tasks",
        "domain/tasks/book.py",
        "            self._leases.begin(task)\n            given.append",
        "            given.append",
        ("tests/unit/test_task_lane.py", "tests/unit/test_task_lane_stateful.py"),
    ),
    Defect(
        "a-delivery-is-not-repeated",
        "webhooks",
        "domain/webhooks.py",
        "if answered.hopeless or number > len(pauses):",
        "if answered.hopeless or number > 0:",
        ("tests/unit/test_webhooks.py",),
    ),
    Defect(
        "a-signature-forgets-its-time",
        "webhooks",
        "domain/webhooks.py",
        'signed = b".".join((delivery_id.encode(), timestamp.encode(), body))',
        'signed = b".".join((delivery_id.encode(), body))',
        ("tests/unit/test_webhooks.py",),
    ),
    Defect(
        "a-secret-is-logged",
        "webhooks",
        "activities/webhooks/steps.py",
        "            receiver=delivery.receiver,\n",
        "            receiver=self._sealer.open(Sealed(token=delivery.url)),\n",
        ("tests/faults/test_promises.py", "-k", "secrets"),
    ),
    Defect(
        "a-schedule-never-fires",
        "addresses",
        "workflows/addresses/schedules.py",
        "every=timedelta(seconds=pause_seconds)",
        "every=timedelta(days=pause_seconds)",
        ("tests/integration/test_address_schedule.py",),
    ),
    Defect(
        "a-refusal-is-lost-in-a-reset",
        "shared",
        "api/server.py",
        "            self.transport.write_eof()\n",
        "            self.transport.abort()\n",
        ("tests/integration/test_api_limits.py", "-k", "refusal"),
    ),
    Defect(
        "a-listener-cannot-be-stopped",
        "shared",
        "infra/database.py",
        "            async with asyncio.timeout(_SILENCE_SECONDS):\n                payload = await heard.get()\n",
        "            payload = await asyncio.wait_for(heard.get(), _SILENCE_SECONDS)\n",
        ("tests/unit/test_database_listening.py",),
    ),
    Defect(
        "a-private-address-is-let-through",
        "shared",
        "infra/http.py",
        "if not _to_ours.get() and not self._rules.admits(",
        "if self._rules is None and not self._rules.admits(",
        ("tests/unit/test_http_guard.py",),
    ),
    Defect(
        "a-query-begins-a-turn",
        "shared",
        "infra/turns.py",
        "if at == self._time and act.history_length > self._events and not act.is_replaying:",
        "if act.run_id is None:",
        ("tests/unit/test_turns.py",),
    ),
    Defect(
        "a-secret-is-told",
        "shared",
        "api/orders/platforms.py",
        "call.services.sealer.seal(body.notify_url).token",
        "body.notify_url",
        ("tests/faults/test_promises.py", "-k", "secrets"),
    ),
    Defect(
        "a-kill-kills-nothing",
        "tests",
        "tests/support/kills.py",
        "            self._target.kill(name)\n",
        "            pass\n",
        ("tests/faults/test_download_kills.py", "-k", "store"),
    ),
    Defect(
        "a-kill-finds-nothing-under-way",
        "tests",
        "tests/faults/test_download_kills.py",
        "return await _pages_asked(deployment, tag) < PAGES",
        "return await _pages_asked(deployment, tag) < 0",
        ("tests/faults/test_download_kills.py", "-k", "store"),
    ),
)
