"""Flaws of transfers' other side; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import MAY_PASS, PASSES, Kind, See


class Group(StrEnum):
    """Parts of the other side; a world has at most one flaw of each."""

    TARGET = "target"
    UPLOAD = "upload"
    RECORDS = "records"
    CALLS = "calls"
    TERMINATE = "terminate"
    REPOSITORY = "repository"
    CALLERS = "callers"


KINDS: Mapping[str, Kind] = {
    # what becomes of some targets
    "fails": Kind(1, Group.TARGET),
    "fails_for_now": Kind(1, Group.TARGET, passes=(False, True, True)),
    "runs_for_ever": Kind(1, Group.TARGET),
    "fails_then_runs_for_ever": Kind(1, Group.TARGET),
    "unknown_code": Kind(3, Group.TARGET),
    "code_is_a_word": Kind(3, Group.TARGET),
    "success_without_file": Kind(6, Group.TARGET, See.NOBODY),
    "never_told": Kind(9, Group.TARGET),
    "old_agent": Kind(10, Group.TARGET),
    "flaps": Kind(13, Group.TARGET, passes=(False, True, True)),
    "other_bytes_arrive": Kind(16, Group.TARGET, See.NOBODY),
    "container_gone": Kind(20, Group.TARGET),
    "agent_gone": Kind(19, Group.TARGET),
    "agent_state_odd": Kind(19, Group.TARGET, passes=PASSES),
    # what becomes of the upload that all targets wait for
    "upload_fails": Kind(4, Group.UPLOAD, passes=(False, True)),
    "upload_cannot": Kind(4, Group.UPLOAD),
    "upload_runs_for_ever": Kind(15, Group.UPLOAD),
    # how results look
    "empty_at_first": Kind(2, Group.RECORDS, passes=MAY_PASS),
    "records_shuffled": Kind(4, Group.RECORDS),
    "records_without_type": Kind(4, Group.RECORDS),
    "no_records_after_upload": Kind(4, Group.RECORDS),
    "codes_as_texts": Kind(3, Group.RECORDS),
    "records_of_strangers": Kind(9, Group.RECORDS),
    "records_twice": Kind(9, Group.RECORDS),
    "older_records_too": Kind(13, Group.RECORDS),
    "success_below_100": Kind(15, Group.RECORDS),
    # how calls are answered
    "create_lost": Kind(14, Group.CALLS, passes=MAY_PASS),
    "create_unreadable": Kind(14, Group.CALLS, passes=MAY_PASS),
    "create_limited": Kind(18, Group.CALLS, passes=PASSES),
    "create_refused": Kind(11, Group.CALLS),
    "results_down": Kind(18, Group.CALLS, passes=MAY_PASS),
    "results_hang": Kind(18, Group.CALLS, passes=PASSES),
    "task_forgotten": Kind(18, Group.CALLS),
    "states_down": Kind(19, Group.CALLS, passes=PASSES),
    "states_hang": Kind(19, Group.CALLS, passes=PASSES),
    # what becomes of a cancellation
    "terminate_ignored": Kind(12, Group.TERMINATE),
    "terminate_down": Kind(12, Group.TERMINATE, passes=MAY_PASS),
    "terminate_blocked": Kind(11, Group.TERMINATE),
    # what the repository answers
    "file_cut": Kind(5, Group.REPOSITORY, passes=MAY_PASS),
    "file_short": Kind(5, Group.REPOSITORY, passes=MAY_PASS),
    "file_is_another": Kind(5, Group.REPOSITORY, passes=MAY_PASS),
    "file_missing": Kind(5, Group.REPOSITORY, passes=MAY_PASS),
    "repository_down": Kind(5, Group.REPOSITORY, passes=MAY_PASS),
    "repository_slow": Kind(5, Group.REPOSITORY, passes=PASSES),
    # what callers do
    "asked_twice": Kind(7, Group.CALLERS),
    "two_contents": Kind(7, Group.CALLERS),
    "source_is_target": Kind(8, Group.CALLERS),
    "many_wishes": Kind(17, Group.CALLERS),
}
