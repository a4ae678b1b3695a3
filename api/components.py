"""The components that every system needs: their health, and the sentence that says which do not serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from pydantic import AwareDatetime, Field

from api.http.models import Response
from infra import outages
from services.services import Services
from systems import System

NAMES: Final = {
    "database": outages.Component.DATABASE,
    "engine": outages.Component.ENGINE,
    "bucket": outages.Component.STORE,
}


class ComponentHealth(Response):
    """The health of a component."""

    name: str = Field(description="`database`, `engine` or `bucket`")
    ok: bool
    problem: str | None = Field(description="what is wrong; null if it is well")
    down_since: AwareDatetime | None = Field(
        description="when this API process first found that it does not serve; null if it is well"
    )
    milliseconds: float | None = Field(description="how long its answer took; null where there was none")


async def measure_health_of_all(services: Services) -> list[ComponentHealth]:
    """Check every component, all at once."""
    return list(await asyncio.gather(*(_measure_health(services, name) for name in services.health_checks)))


async def _measure_health(services: Services, name: str) -> ComponentHealth:
    started = time.perf_counter()
    problem = await services.check_component_and_note_down_since(name)
    milliseconds = None if problem else round((time.perf_counter() - started) * 1000, 1)
    return ComponentHealth(
        name=name,
        ok=problem is None,
        problem=problem,
        down_since=services.get_down_since(name) if problem else None,
        milliseconds=milliseconds,
    )


def is_component_silent(components: Sequence[ComponentHealth], name: str) -> bool:
    """Return whether a component does not answer, so that a call to it would only wait."""
    return any(each.name == name and each.problem == outages.NO_ANSWER for each in components)


def describe_outages(components: Sequence[ComponentHealth], unread: Sequence[System]) -> str | None:
    """Return which components do not serve, since when, and whose figures are missing for it; None if all is well."""
    said = [
        f"{NAMES[each.name]} does not serve since {each.down_since:%Y-%m-%d %H:%M:%S} UTC: {each.problem}"
        for each in components
        if each.problem
    ]
    if unread:
        said.append(f"The figures of {', '.join(unread)} cannot be read at present.")
    return " ".join(said) or None
