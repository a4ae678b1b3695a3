"""What a callback carries stays small, whatever the data were like."""

from __future__ import annotations

import json

from domain.downloads import models, retries
from domain.downloads.models import DownloadResult, DownloadSpec, DownloadState, StoredFile


def test_thousands_of_keys_do_not_swell_a_callback() -> None:
    """Some are named, all are counted."""
    keys = [f"{number}-{'k' * 1_000}" for number in range(5_000)]
    file = StoredFile(key="k", name="n", rows=1, bytes=1, etag="e", left_out=keys, warnings=keys)
    spec = DownloadSpec(task_id="t", project_id="p", file_name="n.xlsx")

    told = models.build_webhook_payload(spec, DownloadResult(state=DownloadState.SUCCEEDED, file=file), 1)

    assert told["left_out_count"] == 5_000
    assert told["left_out"] == [key[:200] for key in keys[:30]]
    assert len(json.dumps(told)) < 20_000


def test_keys_of_a_source_are_stored_without_what_no_table_holds() -> None:
    """PostgreSQL stores neither NUL nor half a surrogate pair; the end of a download would be tried again for ever."""
    file = StoredFile(key="k", name="n", rows=1, bytes=1, etag="e", left_out=["a\0b"], warnings=["a\ud83d"])
    fault = retries.build_columns_changing_fault(["a\0b"])

    assert (file.left_out, file.warnings) == (["a\ufffdb"], ["a\ufffd"])
    assert "a\ufffdb" in fault.message
