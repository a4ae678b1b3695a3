"""Every code that may reach a client is on the page of names, and the API's document names those of its routes."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from api.tasks.responses import PROBLEM_CODES
from domain.quotas import QuotaLimits
from domain.transfers.models import FailureReason
from tests.support import wire_codes
from tests.support.wire_names import PAGE

OF_COMMANDS = {
    *("admin_key_short", "backup_held_up", "payload_key_malformed", "payload_keys_missing", "pepper_short"),
    *("processes_running", "restore_not_empty", "restore_unfinished", "restore_wrong_revision", "settings_invalid"),
    "tls_file_wrong",
}
"""They end a command or a process."""
OF_TASKS = {*PROBLEM_CODES, "retry_intervals_contradict", "too_many_tasks_at_once"}
"""Routes of tasks answer with numbers; metrics and the audit log have these."""
OF_NO_ROUTE = {"expectation_failed", "method_not_allowed"}
"""Answers to requests that no route takes."""
OF_FAULTS = {"backfill_ended", "comparison_ended", "module_failed", *FailureReason}
"""Faults of work that no request filters by, or filters by as a reason."""
OF_DETAILS = {"signature_mismatch", "too_many_columns"}
"""Faults that are answered with another code, and with the sentence of this one."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return wire_codes.read_document()


@pytest.fixture(scope="module")
def registered() -> set[str]:
    """The codes on the page."""
    return set(re.findall(r"^code (\S+)$", PAGE.read_text(), re.MULTILINE))


def test_every_code_of_the_document_is_registered(document: dict[str, Any], registered: set[str]) -> None:
    """Those that responses name, and those that requests and fields take."""
    documented = wire_codes.list_documented_codes(document)
    assert {"platform_zone", "internal_error", "slice_too_short", "unavailable", "source_status"} <= documented
    assert documented <= registered


def test_every_registered_code_is_in_the_document(document: dict[str, Any], registered: set[str]) -> None:
    """A code is declared by the routes that answer it, or is one of these kinds."""
    elsewhere = OF_COMMANDS | OF_TASKS | OF_NO_ROUTE | OF_FAULTS | OF_DETAILS
    assert registered - wire_codes.list_documented_codes(document) - elsewhere == set()


def test_what_is_no_code_is_not_registered(registered: set[str]) -> None:
    """Quotas have a section of their own."""
    assert registered.isdisjoint(QuotaLimits.model_fields)
    assert "target_host" not in registered


SOURCE = """
_FIRST, _SECOND = "first_of_two", "second_of_two"
_THIRD: Final = "third"

class Refused(Conflict): ...

config.setdefault("no_code", 1)
SingleQuotaUsage("no_code", 1)
Refused(_FIRST, "…")
Refused(code=module._SECOND, message="…")
FaultRecord(code=_THIRD, message="…")
RequestRejected(status, "fourth", "…")
Conflict("no code", "…")
"""


def test_codes_are_found_where_faults_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the class of the fault, not by words in its name; a code may be a constant."""
    classes = ast.parse("class Fault(Exception): ...\nclass Conflict(Fault): ...")
    monkeypatch.setattr(wire_codes, "parse_layers", lambda: [classes, ast.parse(SOURCE)])
    found = [code for code, _ in wire_codes.find_calls_with_codes()]
    assert found == ["first_of_two", "second_of_two", "third", "fourth"]
