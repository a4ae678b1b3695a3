"""Alerts, dashboards and the reference of metrics name what the code declares; every alert has its section."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from systems import SYSTEMS
from tests.support import observability
from tests.support.observability import FOLDER, ROOT
from tests.support.requirements import PROMTOOL

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
RUNBOOK = (ROOT / "docs/how-to/operate.md").read_text()
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in (FOLDER / "dashboards").glob("*.json")}
OF_THE_SDK = {"temporal_request"}
"""`test_metrics_count_requests_by_route_and_hold_the_sdk_s_figures` sees it in a running API."""

OF_EVERY_SYSTEM = [
    "HaulageQueueWithoutWorker",
    "HaulageQueueWaits",
    "HaulageActivitiesFail",
    "HaulageActivitiesTimeOut",
    "HaulageWorkflowsFail",
    "HaulageSystemPaused",
]

METRIC = re.compile(r"\b(?:haulage|temporal)_[a-z_]+")
LABEL = re.compile(r"\{([^}]*)\}")


def find_unknown(expression: str) -> list[str]:
    """Return the metrics of an expression that no process serves."""
    declared = {observability.name_metric(each) for each in observability.list_metrics()}
    parts = {f"{each}{part}" for each in declared for part in ("", "_count", "_sum", "_bucket")}
    return sorted(set(METRIC.findall(LABEL.sub("", expression))) - parts - OF_THE_SDK)


def test_metrics_that_are_not_declared_are_found() -> None:
    """An alert on a metric that was renamed would never fire."""
    assert find_unknown("sum(rate(haulage_requests_total[5m])) + haulage_component_up") == ["haulage_requests_total"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_uses_metrics_that_exist_and_has_a_section(rule: dict[str, Any]) -> None:
    """The section says what it means, how to look and what to do."""
    assert find_unknown(rule["expr"]) == []
    assert rule["for"]
    assert rule["annotations"]["runbook"] == f"docs/how-to/operate.md#{rule['alert'].lower()}"
    [section] = re.findall(rf"^### {rule['alert']}\n\n(.*?)(?=^#|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert re.search(r"\S.*^Look: .*^Do: ", section, re.MULTILINE | re.DOTALL)


def test_every_system_has_alerts_for_work_that_waits_and_that_fails() -> None:
    """At least twenty alerts in all."""
    names = {rule["alert"] for rule in RULES}
    assert len(names) == len(RULES) >= 20
    assert {f"Haulage{system.capitalize()}{what}" for system in SYSTEMS for what in ("StandStill", "Fail")} <= names


@pytest.mark.parametrize("name", OF_EVERY_SYSTEM)
def test_some_alerts_look_at_every_system(name: str) -> None:
    """Also at one that is new: they name no system and no queue."""
    [rule] = [rule for rule in RULES if rule["alert"] == name]
    named = re.findall(r'\b(?:system|queue|workflow_type|activity_type)[=~!]+"', rule["expr"])
    assert named == []


@pytest.mark.parametrize("name", ["overview", "engine", *SYSTEMS])
def test_a_dashboard_shows_metrics_that_exist(name: str) -> None:
    """Each panel; `python -m tests.support.observability` writes them."""
    assert json.loads(observability.build_dashboards()[f"{name}.json"]) == DASHBOARDS[name]
    expressions = [target["expr"] for panel in DASHBOARDS[name]["panels"] for target in panel["targets"]]
    assert [unknown for each in expressions for unknown in find_unknown(each)] == []
    assert len(expressions) >= 5


def test_the_reference_has_every_metric() -> None:
    """As the code declares it; the same command writes it."""
    assert observability.REFERENCE.read_text() == observability.build_reference()


def test_every_metric_is_counted_somewhere() -> None:
    """`haulage_download_bytes_total` was declared, shown and never counted."""
    declared = re.findall(
        r"^([A-Z_]+) = (?:Counter|Gauge|Histogram)\(", (ROOT / "infra/metrics.py").read_text(), re.MULTILINE
    )
    sources = [
        path.read_text()
        for layer in ("api", "activities", "clients", "stores", "infra", "cli")
        for path in (ROOT / layer).rglob("*.py")
    ]
    assert len(declared) >= 40
    assert [name for name in declared if not any(f"metrics.{name}" in source for source in sources)] == []


def test_rules_are_valid_and_fire_as_their_tests_say() -> None:
    """Also how long they wait before they fire."""
    promtool = PROMTOOL.require()
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
