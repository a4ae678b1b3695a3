"""A Prometheus with the rules of `deploy/observability`, their times cut short, that scrapes a deployment."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.observability import FOLDER
from tests.support.waiting import eventually

SCRAPE_SECONDS = 2
WAIT = "3s"
RANGE = "40s"
SLOW_SCRAPE_SECONDS = 9
"""A check of a component that hangs takes 5 s."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    address: str
    session: aiohttp.ClientSession

    async def list_firing(self) -> list[dict[str, str]]:
        """Return the labels of all alerts that fire now."""
        async with self.session.get(f"{self.address}/api/v1/alerts") as answer:
            alerts = (await answer.json())["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    async def list_targets(self) -> dict[str, str]:
        """Return the health of each target by its address."""
        async with self.session.get(f"{self.address}/api/v1/targets") as answer:
            targets = (await answer.json())["data"]["activeTargets"]
        return {target["scrapeUrl"]: target["health"] for target in targets}


def shorten_rules() -> str:
    """Return the rules with short waits, ranges and offsets; expressions and thresholds stay."""
    text = re.sub(r"^(    for:) \S+$", rf"\1 {WAIT}", (FOLDER / "rules.yaml").read_text(), flags=re.MULTILINE)
    return re.sub(r"\[\d+[mh]\]", f"[{RANGE}]", re.sub(r"offset \d+[mh]", f"offset {RANGE}", text))


def _build_configuration(jobs: Mapping[str, list[str]]) -> dict[str, Any]:
    scrapes: list[dict[str, Any]] = [
        {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
    ]
    # What a component that hangs makes slow is seen by one that is patient, as the default of Prometheus is.
    patient = {
        "job_name": "patient",
        "scrape_interval": f"{SLOW_SCRAPE_SECONDS}s",
        "scrape_timeout": f"{SLOW_SCRAPE_SECONDS}s",
        "static_configs": [{"targets": jobs["haulage-api"][:1]}],
        "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": "haulage_component_up", "action": "keep"}],
    }
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{SCRAPE_SECONDS}s",
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": [*scrapes, patient],
    }


@asynccontextmanager
async def running_prometheus(program: str, folder: Path, jobs: Mapping[str, list[str]]) -> AsyncIterator[Prometheus]:
    """Run Prometheus on a free port until the block ends.

    Args:
        program: The path of the program.
        folder: Where its configuration and its data are.
        jobs: Hosts and ports of the targets, by the name of their job.
    """
    (folder / "rules.yaml").write_text(shorten_rules())
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_build_configuration(jobs)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    with (folder / "log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            stdout=out,
            stderr=out,
        )
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(f"http://{address}", session)

            async def is_ready() -> bool:
                assert process.returncode is None, (folder / "log").read_text()
                try:
                    return bool(await prometheus.list_targets())
                except aiohttp.ClientError:
                    return False

            await eventually(is_ready)
            yield prometheus
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
