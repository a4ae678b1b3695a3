"""GSE's records are read as its clients know them, and its codes are sorted into what to do next."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.transfers import gse
from domain.transfers.gse import GseAgentWithUser, GseProgress, GseRecordsByAgent, GseVerdict, UploadOrDownload

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def entry(code: object = 0, **content: Any) -> dict[str, Any]:
    """Return one entry of a result, by default of the target `a1`."""
    return {"error_code": code, "error_msg": "", "content": {"dest_agent_id": "a1", "type": "download"} | content}


def read(code: int = 0, **content: Any) -> GseProgress:
    """The record in such an entry."""
    record = GseProgress.parse(entry(code, **content))
    assert record
    return record


@pytest.mark.parametrize(
    ("content", "side"),
    [
        ({"type": "upload"}, UploadOrDownload.UPLOAD),
        ({"type": "download"}, UploadOrDownload.DOWNLOAD),
        ({"mode": 0}, UploadOrDownload.UPLOAD),
        ({"mode": 1}, UploadOrDownload.DOWNLOAD),
        ({"type": "", "mode": 1}, UploadOrDownload.DOWNLOAD),
        ({"type": "upload", "mode": 1}, UploadOrDownload.UPLOAD),
        ({"dest_agent_id": "b"}, UploadOrDownload.DOWNLOAD),
        ({"dest_agent_id": ""}, UploadOrDownload.UPLOAD),
    ],
)
def test_the_side_is_told_by_type_or_by_mode(content: dict[str, Any], side: UploadOrDownload) -> None:
    """Some deployments send `type`, some `mode`, some neither; each record has one side all the same."""
    record = GseProgress.parse({"error_code": 115, "content": {"source_agent_id": "s", "dest_agent_id": "a"} | content})

    assert record
    assert (record.side, record.agent_id) == (
        side,
        "s" if side is UploadOrDownload.UPLOAD else content.get("dest_agent_id", "a"),
    )


@pytest.mark.parametrize(
    ("code", "verdict", "upload_verdict"),
    [
        (0, GseVerdict.SUCCESS, GseVerdict.SUCCESS),
        (115, GseVerdict.RUNNING, GseVerdict.RUNNING),
        (1000115, GseVerdict.RUNNING, GseVerdict.RUNNING),
        (117, GseVerdict.RETRYABLE, GseVerdict.RETRYABLE),
        (120, GseVerdict.RETRYABLE, GseVerdict.RETRYABLE),
        (703, GseVerdict.RETRYABLE, GseVerdict.RETRYABLE),
        (118, GseVerdict.RETRYABLE, GseVerdict.RETRYABLE),
        (705, GseVerdict.FATAL, GseVerdict.RETRYABLE),  # the source's file is verified and sent again
        (122, GseVerdict.FATAL, GseVerdict.FATAL),
        (119, GseVerdict.FATAL, GseVerdict.FATAL),
        (126, GseVerdict.FATAL, GseVerdict.FATAL),
        (42, GseVerdict.FATAL, GseVerdict.FATAL),
        (-1, GseVerdict.FATAL, GseVerdict.FATAL),
    ],
)
def test_codes_are_sorted_into_what_to_do(code: int, verdict: GseVerdict, upload_verdict: GseVerdict) -> None:
    """Only what may pass is sent again; an unknown code is final."""
    assert read(code).verdict is verdict
    assert read(code, type="upload").verdict is upload_verdict


@pytest.mark.parametrize(
    ("agent_id", "container_id", "key"),
    [
        ("0:10.0.0.1", "", ("0:10.0.0.1", "")),  # the original cut it at the first colon
        ("0:10.0.0.1", "docker://4f1a", ("0:10.0.0.1", "4f1a")),
        ("0200000000ab", "containerd://4f1a", ("0200000000ab", "4f1a")),
        ("0200000000ab", "4f1a", ("0200000000ab", "4f1a")),
    ],
)
def test_requests_and_records_meet_in_the_key(agent_id: str, container_id: str, key: gse.AgentKey) -> None:
    """Old agent ids stay whole, runtimes before a container's id are dropped, on both sides alike."""
    assert GseAgentWithUser(agent_id, container_id, "root").key == key
    assert read(dest_agent_id=agent_id, dest_container_id=container_id).key == key


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"error_code": 0},
        {"error_code": 0, "content": None},
        {"content": {"dest_agent_id": "a", "type": "download"}},  # no code: the original read 0, a success
        entry(None),
        entry(True),
        entry(0, dest_agent_id=""),
        entry(0, dest_agent_id=None),
    ],
)
def test_what_says_nothing_is_no_record(wrong: object) -> None:
    """A target stays unknown rather than being taken for a success."""
    assert GseProgress.parse(wrong) is None


@pytest.mark.parametrize(
    ("code", "read", "verdict"),
    [
        ("0", 0, GseVerdict.SUCCESS),
        (" 115 ", 115, GseVerdict.RUNNING),
        ("-1", -1, GseVerdict.FATAL),
        ("broken", -1, GseVerdict.FATAL),
        ("", -1, GseVerdict.FATAL),
        (10**12, -1, GseVerdict.FATAL),
    ],
)
def test_a_code_that_comes_as_a_text(code: object, read: int, verdict: GseVerdict) -> None:
    """Digits are that number; anything else is a failure, and never a success."""
    record = GseProgress.parse(entry(code))

    assert record is not None
    assert (record.error_code, record.verdict) == (read, verdict)
    assert ("'broken'" in record.message) == (code == "broken")
    assert ("1000000000000" in record.message) == (code == 10**12)


@given(JSON)
def test_reading_never_fails(value: object) -> None:
    """Whatever lies in an entry, reading it gives a record or none."""
    record = GseProgress.parse({"error_code": 115, "content": {"type": "upload", "progress": value, "speed": value}})

    assert record
    assert 0 <= record.progress <= 100
    GseProgress.parse(value)
    GseProgress.parse({"error_code": value, "content": value})


def test_a_success_is_whole_whatever_progress_it_tells() -> None:
    """GSE may report less than 100 per cent for a file that has arrived."""
    assert read(0, progress=97).progress == 100
    assert read(115, progress=97).progress == 97


def test_the_most_final_of_several_records_counts_in_any_order() -> None:
    """A repeated target has one state, and it does not hang on the order of the answer."""
    told = [read(code) for code in (115, 117, 0, 115)]

    for order in itertools.permutations(told):
        assert GseRecordsByAgent.from_records(order).downloads["a1", ""].verdict is GseVerdict.SUCCESS


def test_the_upload_is_kept_apart_from_targets() -> None:
    """A source that is also a target has both records."""
    results = GseRecordsByAgent.from_records([read(0), read(705, type="upload", source_agent_id="a1")])

    assert results.downloads["a1", ""].verdict is GseVerdict.SUCCESS
    assert results.upload
    assert results.upload.error_code == 705


@pytest.mark.parametrize(
    ("code", "error_msg", "message"),
    [
        (117, "", "The agent is down or does not answer; see whether GSE's agent runs on that host."),
        (42, "disk full", "GSE reported an error (code 42). GSE says: disk full"),
    ],
)
def test_a_message_says_what_happened(code: int, error_msg: str, message: str) -> None:
    """Our reading of the code comes first, then GSE's own words."""
    record = GseProgress.parse(entry(code) | {"error_msg": error_msg})

    assert record
    assert record.message == message


def test_messages_are_bounded() -> None:
    """GSE cannot make a message outgrow a payload."""
    record = GseProgress.parse(entry(1) | {"error_msg": "x" * 100_000})

    assert record
    assert len(record.message) <= 8_000


def test_an_order_is_asked_for_as_gse_wants_it() -> None:
    """Users, bare container ids and both locations are where GSE expects them."""
    order = gse.GseTransferRequest(
        source=GseAgentWithUser("s", "docker://c0", "root"),
        source_file=gse.FolderAndFileName("/cache/2", "abc"),
        targets=[GseAgentWithUser("0:10.0.0.1", "", "app"), GseAgentWithUser("b", "containerd://c1", "app")],
        target_file=gse.FolderAndFileName("/data", "abc"),
        timeout_seconds=600,
    )

    task = order.to_body()["tasks"][0]
    assert task["source"] == {
        "file_name": "abc",
        "store_dir": "/cache/2",
        "agent": {"user": "root", "bk_agent_id": "s", "bk_container_id": "c0"},
    }
    assert task["target"]["agents"] == [
        {"user": "app", "bk_agent_id": "0:10.0.0.1", "bk_container_id": ""},
        {"user": "app", "bk_agent_id": "b", "bk_container_id": "c1"},
    ]
