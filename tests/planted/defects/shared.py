"""Defects of what all systems share."""

from __future__ import annotations

from tests.planted.defect import Defect

DEFECTS = (
    Defect(
        "all-housekeeping-waits-for-workers-of-downloads",
        "shared",
        "workflows/schedules.py",
        "            task_queue=names.QUEUE,\n",
        '            task_queue="downloads",\n',
        ("tests/integration/test_housekeeping_of_systems.py", "-k", "tasks_alone"),
    ),
    Defect(
        "a-workflow-looks-at-the-clock",
        "shared",
        "workflows/orders/slice.py",
        '        self._tell("running", None, self._status.fault)\n',
        '        self._tell("running" if datetime.now() else "", None, self._status.fault)\n',
        ("tests/replay",),
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
        "a-full-disk-is-taken-for-a-mistake",
        "shared",
        "infra/outages.py",
        "            if isinstance(cause, (asyncpg.PostgresError, asyncpg.InterfaceError)):\n",
        "            if isinstance(cause, asyncpg.InterfaceError):\n",
        ("tests/unit/test_api_outages.py", "-k", "statement"),
    ),
    Defect(
        "a-private-address-is-let-through",
        "shared",
        "clients/http.py",
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
        "an-answer-has-any-size",
        "shared",
        "clients/http.py",
        "            if received > max_bytes:\n",
        "            if received > 1_000 * max_bytes:\n",
        ("tests/unit/test_http_limits.py", "-k", "too_large or bomb"),
    ),
    Defect(
        "a-revoked-key-opens",
        "shared",
        "stores/shared/projects.py",
        "coalesce(least(k.revoked_at, p.revoked_at) > now(), true) AS live",
        "true AS live",
        ("tests/integration/test_api_projects.py", "-k", "without_overlap"),
    ),
    Defect(
        "another-schema-is-worked-on",
        "shared",
        "stores/migrate.py",
        "    if found != needed:\n",
        "    if found is None:\n",
        ("tests/integration/test_migrations.py", "-k", "refused"),
    ),
    Defect(
        "a-dead-worker-s-workflows-wait-as-long-as-by-default",
        "shared",
        "infra/settings.py",
        "    sticky_timeout_seconds: float = 1.0\n",
        "    sticky_timeout_seconds: float = 10.0\n",
        ("tests/faults/test_recovery.py", "-k", "four_seconds"),
    ),
)
