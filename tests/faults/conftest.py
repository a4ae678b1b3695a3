"""Fixtures of the fault tests: what may be killed, and the count of kills."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from dev.embedded.stack import EmbeddedStack
from tests.support.deployment import Deployment, Deployments
from tests.support.kills import RECORD, Killer, KillRecord
from tests.support.stack import Namespaces


@pytest.fixture(scope="package")
async def deployments(stack: EmbeddedStack, template: str, namespaces: Namespaces) -> AsyncIterator[Deployments]:
    """API and worker processes over this process' stack, until no more test kills; ask for `deployment`."""
    running = Deployments(stack, template)
    with namespaces.keeping_engine():
        yield running
        await running.close()


@pytest.fixture
async def deployment(deployments: Deployments, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    """Return the processes that the tests of this test process share.

    `@pytest.mark.deployment(section={"field": value}, why="…")` starts them anew with other settings.
    """
    marker = request.node.get_closest_marker("deployment")
    changes = {name: value for name, value in marker.kwargs.items() if name != "why"} if marker else {}
    deployment = await deployments.get(changes)
    yield deployment
    await deployment.rest()


@pytest.fixture
def killer(deployment: Deployment, request: pytest.FixtureRequest) -> Killer:
    """Return what kills parts of the deployment, and counts for the summary at the end of the run."""
    record = request.node.stash[RECORD] = KillRecord(request.node.nodeid)
    return Killer(record, deployment)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Return the test's own random numbers; the run's seed, which is printed, gives the same again."""
    return random.Random(f"{request.config.getoption('randomly_seed')}/{request.node.nodeid}")
