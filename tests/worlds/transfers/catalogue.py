"""How repositories, GSE and hosts are known to behave, and which flaw of worlds plays it."""

from __future__ import annotations

from tests.worlds.catalogue import Catalogue, Row
from tests.worlds.flaws import See

CATALOGUE: Catalogue = {
    1: Row(
        "a few of many targets fail, or never end",
        flaws=("fails", "fails_for_now", "runs_for_ever", "fails_then_runs_for_ever"),
    ),
    2: Row("results are empty at first, or for ever", flaws=("empty_at_first",)),
    3: Row("codes that are unknown, negative, or texts", flaws=("unknown_code", "code_is_a_word", "codes_as_texts")),
    4: Row(
        "the upload fails, before or after some downloads; records in any order and of any form",
        flaws=(
            *("upload_fails", "upload_cannot", "records_shuffled", "records_without_type"),
            "no_records_after_upload",
        ),
    ),
    5: Row(
        "the repository cuts, mixes up, has not, or is slow",
        flaws=(*("file_cut", "file_short", "file_is_another", "file_missing", "repository_down", "repository_slow"),),
    ),
    6: Row("success is told, and no file is there", See.NOBODY, flaws=("success_without_file",)),
    7: Row(
        "the same name, or the same target, twice; with the same content or another one",
        flaws=("asked_twice", "two_contents"),
    ),
    8: Row("the source is a target, too", flaws=("source_is_target",)),
    9: Row(
        "records of strangers, records twice, and none of who was asked for",
        flaws=("never_reported", "records_of_strangers", "records_twice"),
    ),
    10: Row("an agent's id that GSE has no more", flaws=("old_agent",)),
    11: Row("one unknown id spoils a call", flaws=("create_refused", "terminate_blocked")),
    12: Row("a termination is taken and ignored, or not taken", flaws=("terminate_ignored", "terminate_down")),
    13: Row("states out of their order", flaws=("flaps", "older_records_too")),
    14: Row("a task is begun, and the answer lost or unreadable", flaws=("create_lost", "create_unreadable")),
    15: Row(
        "success below 100 per cent, an upload that never ends", flaws=("upload_runs_for_ever", "success_below_100")
    ),
    16: Row("peers pass broken pieces on", See.NOBODY, flaws=("other_bytes_arrive",)),
    17: Row("a burst of different wishes for one file", flaws=("many_wishes",)),
    18: Row(
        "GSE is busy, down, hangs, or forgets tasks",
        flaws=("create_limited", "results_down", "results_hang", "task_forgotten"),
    ),
    19: Row(
        "states of agents: gone, odd, late or none",
        flaws=("agent_gone", "agent_state_odd", "states_down", "states_hang"),
    ),
    20: Row("a container that is gone", flaws=("container_gone",)),
}
