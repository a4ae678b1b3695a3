"""Flaws of transfers' other side; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import MAY_PASS, PASSES, Kind, See


class TransferFlawGroup(StrEnum):
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
    "fails": Kind(1, TransferFlawGroup.TARGET),
    "fails_for_now": Kind(1, TransferFlawGroup.TARGET, passes=(False, True, True)),
    "runs_for_ever": Kind(1, TransferFlawGroup.TARGET),
    "fails_then_runs_for_ever": Kind(1, TransferFlawGroup.TARGET),
    "unknown_code": Kind(3, TransferFlawGroup.TARGET),
    "code_is_a_word": Kind(3, TransferFlawGroup.TARGET),
    "success_without_file": Kind(6, TransferFlawGroup.TARGET, See.NOBODY),
    "never_reported": Kind(9, TransferFlawGroup.TARGET),
    "old_agent": Kind(10, TransferFlawGroup.TARGET),
    "flaps": Kind(13, TransferFlawGroup.TARGET, passes=(False, True, True)),
    "other_bytes_arrive": Kind(16, TransferFlawGroup.TARGET, See.NOBODY),
    "container_gone": Kind(20, TransferFlawGroup.TARGET),
    "agent_gone": Kind(19, TransferFlawGroup.TARGET),
    "agent_state_odd": Kind(19, TransferFlawGroup.TARGET, passes=PASSES),
    # what becomes of the upload that all targets wait for
    "upload_fails": Kind(4, TransferFlawGroup.UPLOAD, passes=(False, True)),
    "upload_cannot": Kind(4, TransferFlawGroup.UPLOAD),
    "upload_runs_for_ever": Kind(15, TransferFlawGroup.UPLOAD),
    # how results look
    "empty_at_first": Kind(2, TransferFlawGroup.RECORDS, passes=MAY_PASS),
    "records_shuffled": Kind(4, TransferFlawGroup.RECORDS),
    "records_without_type": Kind(4, TransferFlawGroup.RECORDS),
    "no_records_after_upload": Kind(4, TransferFlawGroup.RECORDS),
    "codes_as_texts": Kind(3, TransferFlawGroup.RECORDS),
    "records_of_strangers": Kind(9, TransferFlawGroup.RECORDS),
    "records_twice": Kind(9, TransferFlawGroup.RECORDS),
    "older_records_too": Kind(13, TransferFlawGroup.RECORDS),
    "success_below_100": Kind(15, TransferFlawGroup.RECORDS),
    # how calls are answered
    "create_lost": Kind(14, TransferFlawGroup.CALLS, passes=MAY_PASS),
    "create_unreadable": Kind(14, TransferFlawGroup.CALLS, passes=MAY_PASS),
    "create_limited": Kind(18, TransferFlawGroup.CALLS, passes=PASSES),
    "create_refused": Kind(11, TransferFlawGroup.CALLS),
    "results_down": Kind(18, TransferFlawGroup.CALLS, passes=MAY_PASS),
    "results_hang": Kind(18, TransferFlawGroup.CALLS, passes=PASSES),
    "task_forgotten": Kind(18, TransferFlawGroup.CALLS),
    "states_down": Kind(19, TransferFlawGroup.CALLS, passes=PASSES),
    "states_hang": Kind(19, TransferFlawGroup.CALLS, passes=PASSES),
    # what becomes of a cancellation
    "terminate_ignored": Kind(12, TransferFlawGroup.TERMINATE),
    "terminate_down": Kind(12, TransferFlawGroup.TERMINATE, passes=MAY_PASS),
    "terminate_blocked": Kind(11, TransferFlawGroup.TERMINATE),
    # what the repository answers
    "file_cut": Kind(5, TransferFlawGroup.REPOSITORY, passes=MAY_PASS),
    "file_short": Kind(5, TransferFlawGroup.REPOSITORY, passes=MAY_PASS),
    "file_is_another": Kind(5, TransferFlawGroup.REPOSITORY, passes=MAY_PASS),
    "file_missing": Kind(5, TransferFlawGroup.REPOSITORY, passes=MAY_PASS),
    "repository_down": Kind(5, TransferFlawGroup.REPOSITORY, passes=MAY_PASS),
    "repository_slow": Kind(5, TransferFlawGroup.REPOSITORY, passes=PASSES),
    # what callers do
    "asked_twice": Kind(7, TransferFlawGroup.CALLERS),
    "two_contents": Kind(7, TransferFlawGroup.CALLERS),
    "source_is_target": Kind(8, TransferFlawGroup.CALLERS),
    "many_wishes": Kind(17, TransferFlawGroup.CALLERS),
}
