"""The console's page of each workflow."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

_RUN: Final = r"(?:-\d{4}-\d\d-\d\dT[0-9:.]+Z)?"
"""The suffix of the workflow ids that a schedule starts."""

_PAGES: Final = tuple(
    (re.compile(pattern), find_page)
    for pattern, find_page in (
        (r"download:(?P<project>[^:]+):(?P<task>.+)", "/downloads/{task}?project={project}"),
        (r"webhook:(?P<project>[^:]+):.+", "/downloads?project_id={project}"),
        (r"(?P<job>AsyncDownloadJob:.+)", "/transfers/jobs/{job}"),
        (rf"order-cycle:(?P<platform>.+?){_RUN}", "/orders/platforms/{platform}"),
        (
            r"order-slice:(?P<platform>[^:]+):(?P<slice>[^:]+:[^:]+)(?::.+)?",
            "/orders/platforms/{platform}/slices/{slice}",
        ),
        (r"order-report:(?P<platform>[^:]+):.+", "/orders/platforms/{platform}"),
        (rf"orders-watch{_RUN}", "/orders"),
        (r"addresses-purge:(?P<purge>.+)", "/addresses/logical-deletes/purges/{purge}"),
        (r"addresses-drift:(?P<report>.+)", "/addresses/drift/{report}"),
        (rf"addresses-check{_RUN}", "/addresses/logical-deletes"),
        (rf"addresses-intake:.+|OSS_IM_INFI_SYNC_EVENT{_RUN}", "/addresses"),
        (r"tasks/(?P<project>[^/]+)/(?P<type>[^/]+)/\d+", "/tasks/types/{type}?project={project}"),
        (rf"[a-z]+-housekeeping{_RUN}", ""),
    )
)


def find_page(workflow_id: str) -> str | None:
    """Return the path of the page that shows a workflow; None if there is none."""
    for pattern, path in _PAGES:
        if match := pattern.fullmatch(workflow_id):
            return "/console" + path.format_map(
                {name: quote(text, safe="") for name, text in match.groupdict().items()}
            )
    return None


def build_details(base: str, workflow_id: str) -> str | None:
    """Return the link to a workflow's page in Markdown; None if it has none, or the console's address is not set."""
    path = find_page(workflow_id) if base else None
    return path and f"[Open in the console]({base.rstrip('/')}{path})"
