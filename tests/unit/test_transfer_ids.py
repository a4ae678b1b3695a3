"""Names of jobs and tasks: the forms that clients know, read from the right, and not to be guessed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.transfers import names
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey, TransferTaskKey

SECRET = b"a key of ours"
PROJECT = "prj_1"
PATHS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
FILES = st.builds(FileByBizAppAndPath, biz_id=st.integers(0, 2**32 - 1), app_id=st.integers(0, 2**32 - 1), path=PATHS)
JOBS = st.builds(TransferJobKey, FILES, st.integers(0, 2**32 - 1))
TASKS = st.builds(TransferTaskKey, JOBS, st.integers(0, 2**60 - 1), st.integers(0, 2**16 - 1))
TASK = TransferTaskKey(
    TransferJobKey(FileByBizAppAndPath(biz_id=1, app_id=2, path="/test/path/file.txt"), 115710720), 3**30, 77
)


def test_ids_have_the_forms_that_clients_know() -> None:
    """`AsyncDownloadJob:{bizID}:{appID}:{filePath}:{timeBucket}`, and a task's ends in a UUID."""
    text = names.format_task_id(TASK, SECRET, PROJECT)
    stem, _, name = text.rpartition(":")

    assert str(TASK.job) == "AsyncDownloadJob:1:2:/test/path/file.txt:115710720"
    assert stem == "AsyncDownloadTask:1:2:/test/path/file.txt"
    assert str(uuid.UUID(name)) == name
    assert (uuid.UUID(name).version, uuid.UUID(name).variant) == (8, uuid.RFC_4122)


@given(JOBS)
def test_a_job_s_id_says_which_job(job: TransferJobKey) -> None:
    """Whatever colons, slashes and digits its path holds."""
    assert names.parse_job_id(str(job)) == job


@given(TASKS)
def test_a_task_s_id_says_which_task(task: TransferTaskKey) -> None:
    """No table is asked for that."""
    assert names.parse_task_id(names.format_task_id(task, SECRET, PROJECT), SECRET, PROJECT) == task


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AsyncDownloadTask",
        "AsyncDownloadTask:1:2:/f:",
        "AsyncDownloadTask:1:2:/f:not-a-uuid",
        "AsyncDownloadTask:1:2::00000000-0000-8000-8000-000000000000",
        "AsyncDownloadTask:01:2:/f:00000000-0000-8000-8000-000000000000",
        "AsyncDownloadTask:1:2:/f:00000000-0000-4000-8000-000000000000",
        names.format_task_id(TASK, SECRET, PROJECT).replace("Task", "Job"),
        names.format_task_id(TASK, SECRET, PROJECT).upper(),
        names.format_task_id(TASK, SECRET, "prj_2"),
        names.format_task_id(TASK, b"another key", PROJECT),
        names.format_task_id(TASK, SECRET, PROJECT).replace("/test/", "/tast/"),
        names.format_task_id(TASK, SECRET, PROJECT).replace(":1:2:", ":1:3:"),
    ],
)
def test_what_we_did_not_give_out_names_nothing(text: str) -> None:
    """Typos, other projects' ids and invented ones are recognized without a lookup."""
    assert names.parse_task_id(text, SECRET, PROJECT) is None


@pytest.mark.parametrize("text", ["AsyncDownloadJob:1:2:/f:", "AsyncDownloadJob:1:2:/f:-1", f"{TASK.job}00", "x"])
def test_what_is_no_job_s_id_names_nothing(text: str) -> None:
    """A window number has at most 32 bits and no sign."""
    assert names.parse_job_id(text) is None


def test_a_target_is_what_is_brought_whereto_by_whom() -> None:
    """The same request is the same target; one that differs in anything is another, also across field borders."""
    base = {"project_id": "p", "signature": "a" * 64, "user": "root", "folder": "/data"}
    wanted = TransferSpec(**base)
    others = [wanted.model_copy(update={name: "other"}) for name in base]
    keys = [names.compute_target_key(each, "agent", "c") for each in (wanted, *others)]
    keys += [names.compute_target_key(wanted, "agen", "tc"), names.compute_target_key(wanted, "agent", "")]

    assert names.compute_target_key(TransferSpec(**base), "agent", "c") == keys[0]
    assert len(set(keys)) == len(keys)


@given(st.floats(0, 2**33), st.integers(1, 3600))
def test_a_window_ends_after_each_of_its_moments(moment: float, window: int) -> None:
    """And not more than its length after."""
    window_number = names.compute_window_number(moment, window)

    assert (
        names.compute_window_end(window_number, window) - window
        <= moment
        < names.compute_window_end(window_number, window)
    )
