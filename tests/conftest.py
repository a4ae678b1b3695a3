"""How a run goes: which fixtures there are, in which order and where tests run, and what is said at the end."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import pytest
import uvloop
from pydantic import BaseModel

pytest_plugins = ["tests.support.fixtures", "tests.support.reporting", "tests.support.scheduling"]

# On a busy machine an example may take long without being wrong; a failing one prints how to run it again.
hypothesis.settings.register_profile(
    "haulage",
    # Where `CI` is set, the library's own profile ignores seeds: a run of CI could not be repeated elsewhere.
    parent=hypothesis.settings.get_profile("default"),
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# Where any failure will do, the smallest one is not needed: see tests/planted.
hypothesis.settings.register_profile(
    "unshrunk",
    parent=hypothesis.settings.get_profile("haulage"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("haulage")

GARBAGE = (50_000, 20, 50)
"""As in the API: how many objects more than before bring the collector, and how often it looks at older ones."""
SESSION = pytest.StashKey[pytest.Session]()

# Nothing that is imported or collected is garbage: looking for it meanwhile takes 3 s of each process.
gc.disable()


_copy_model = BaseModel.model_copy


def _copy_known_fields(model: BaseModel, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> BaseModel:
    """Copy a model, and refuse a field that it does not have: pydantic takes it, and what was meant is lost."""
    known = type(model).model_fields.keys()
    assert model.model_extra is not None or known >= (update or {}).keys(), (type(model), set(update or {}) - known)
    return _copy_model(model, update=update, deep=deep)


BaseModel.model_copy = _copy_known_fields  # type: ignore[method-assign,assignment]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the event loop of the API processes, which computes less than the default one."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make, not again and again at all that was imported for them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the session: its exit status is complete only after the last hook."""
    session.config.stash[SESSION] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave at once: the interpreter may crash at exit once the Temporal client was used (sdk-python #300)."""
    session = config.stash.get(SESSION, None)
    if session is None or "temporalio.bridge.temporal_sdk_bridge" not in sys.modules:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(session.exitstatus)
