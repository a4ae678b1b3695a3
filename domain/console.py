"""The console's pages: where what a workflow does is shown to people."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

_RUN: Final = r"(?:-\d{4}-\d\d-\d\dT[0-9:.]+Z)?"
"""What the engine puts behind the ids of a schedule's runs."""

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
    """The path of the page that shows what a workflow does; None where there is none."""
    for pattern, path in _PAGES:
        if match := pattern.fullmatch(workflow_id):
            return "/console" + path.format_map(
                {name: quote(text, safe="") for name, text in match.groupdict().items()}
            )
    return None


def build_details(base: str, workflow_id: str) -> str | None:
    """What the engine's own page says of it, in Markdown; None where nobody told the console's address."""
    path = find_page(workflow_id) if base else None
    return path and f"[Open in the console]({base.rstrip('/')}{path})"
