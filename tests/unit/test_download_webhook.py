"""What a callback carries stays small, whatever the data were like."""

from __future__ import annotations

import json

from domain.downloads import models
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
