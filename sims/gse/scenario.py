"""The behaviour of a stand-in GSE: its speed, the shape of its responses, and its faults."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

RUNNING_AGENT = 2


class GseCall(StrEnum):
    """The calls of GSE's interface."""

    TRANSFER = "transfer"
    RESULTS = "results"
    TERMINATE = "terminate"
    STATES = "states"


class GseAction(StrEnum):
    """A fault."""

    # with a call
    STATUS = "status"  # an error of the gateway: `status` and `code`
    HTML = "html"  # a page of a proxy, with `status`
    RATE_LIMIT = "rate_limit"  # 429, and when to come back
    REFUSE = "refuse"  # 200 with `code` and `message`
    NO_CODE = "no_code"  # 200 without a code
    NO_TASK_ID = "no_task_id"  # a success that names no task
    RESET = "reset"  # the connection is cut, nothing was done
    DROP = "drop"  # it is done, and then the connection is cut
    SLOW = "slow"  # it is done at once, and answered `seconds` later
    IGNORE = "ignore"  # a success is answered, and nothing is done
    FORGET = "forget"  # the task that it is about is gone from then on; the call is answered by that
    # with a target, each time that it is sent something
    FAIL = "fail"  # with `code` and `message`
    STUCK = "stuck"  # it runs for ever
    MISSING = "missing"  # results have no record of it, although it gets the file
    FLAP = "flap"  # `code` for a while, then it runs again and succeeds
    LOSE = "lose"  # a success, and no file is there
    SPOIL = "spoil"  # a success, and the file holds other bytes
    # with a target, each time that it is to be terminated
    BLOCK_TERMINATE = "block_terminate"  # the whole call is refused that names it, with `code`
    # with the upload of a task
    UPLOAD_FAIL = "upload_fail"  # with `code`; targets that are done `seconds` after the upload began stay so
    UPLOAD_STUCK = "upload_stuck"  # its record says that it runs when all downloads are done


CALL_ACTIONS = frozenset(list(GseAction)[: list(GseAction).index(GseAction.FAIL)])
TARGET_ACTIONS = frozenset(
    {GseAction.FAIL, GseAction.STUCK, GseAction.MISSING, GseAction.FLAP, GseAction.LOSE, GseAction.SPOIL}
)
TERMINATE_ACTIONS = frozenset({GseAction.BLOCK_TERMINATE})
UPLOAD_ACTIONS = frozenset({GseAction.UPLOAD_FAIL, GseAction.UPLOAD_STUCK})


class GseRule(BaseModel):
    """A fault, where it occurs, and how often."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: GseAction
    calls: frozenset[GseCall] = frozenset(GseCall)
    """For faults of a call."""
    agent: str = ".*"
    """For faults of a target or an upload: a pattern that its whole agent id, or that of the source, matches."""
    container: str = ".*"
    fraction: float = Field(default=1.0, ge=0, le=1)
    """The fraction that is affected, drawn from the seed."""
    skip: int = Field(default=0, ge=0)
    """How many succeed first: calls in all, tasks, or transfers to one target."""
    times: int | None = Field(default=None, ge=0)
    """How many fail then."""
    from_second: float = 0.0
    """When it begins, by the simulator's clock since the scenario was set."""
    to_second: float | None = None
    code: int | str = 101
    """For targets a text, too: some deployments answer so."""
    message: str = ""
    status: int = 500
    seconds: float = 1.0

    @cached_property
    def _agents(self) -> re.Pattern[str]:
        return re.compile(self.agent)

    @cached_property
    def _containers(self) -> re.Pattern[str]:
        return re.compile(self.container)

    def counts(self, occurrence: int, now: float) -> bool:
        """Return whether the rule applies to the nth occurrence (from 0), at this second."""
        last = None if self.times is None else self.skip + self.times
        in_turn = occurrence >= self.skip and (last is None or occurrence < last)
        return in_turn and now >= self.from_second and (self.to_second is None or now < self.to_second)

    def concerns(self, agent_id: str, container_id: str) -> bool:
        """Return whether the rule is for this agent."""
        return bool(self._agents.fullmatch(agent_id) and self._containers.fullmatch(container_id))


class Empty(StrEnum):
    """The form of results while there are none."""

    LIST = "list"
    NULL = "null"
    CODE = "code"  # the answer itself has the code 1000115


class Shape(BaseModel):
    """The shape of responses, in which deployments differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    types: bool = True
    modes: bool = True
    upload_record: bool = True
    empty_polls: int = Field(default=0, ge=0, description="results of a task that are empty at first")
    empty_as: Empty = Field(default=Empty.LIST, description="how they look then")
    progress_at_success: int = 100
    unknown_target: bool = Field(default=False, description="a record of a target that was not requested")
    duplicates: bool = Field(default=False, description="each record twice")
    older_too: bool = Field(default=False, description="each record, and the running one that it replaced")
    text_codes: bool = Field(default=False, description="codes of records as texts of digits")
    shuffled: bool = False
    records_after_failed_upload: bool = True


class GseScenario(BaseModel):
    """The whole behaviour of a stand-in GSE."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    upload_seconds: float = Field(default=0.1, ge=0)
    download_seconds: float = Field(default=0.3, ge=0, description="of the first target; later ones wait for peers")
    swarm: float = Field(default=0.1, ge=0, description="how much longer each doubling of the targets takes")
    jitter_seconds: float = Field(default=0.1, ge=0)
    terminate_seconds: float = Field(default=0.1, ge=0)
    speed: float = Field(default=1.0, gt=0, description="seconds by the simulator's clock for one by the wall clock")
    app_code: str = Field(default="", description="empty takes any")
    app_secret: str = ""
    tenant_id: str = Field(default="", description="empty takes any")
    max_targets: int | None = None
    agent_states: dict[str, int] = Field(default={}, description="patterns of agents that do not run, and their states")
    shape: Shape = Shape()
    rules: tuple[GseRule, ...] = ()

    def agent_state(self, agent_id: str) -> int:
        """Return the state of an agent, by the first pattern that matches its whole id."""
        states = (state for agent, state in self.agent_states.items() if re.fullmatch(agent, agent_id))
        return next(states, RUNNING_AGENT)

    def rolls(self, rule: int, *what: object) -> bool:
        """Return whether the fraction of a rule includes this; the same seed always includes the same."""
        fraction = self.rules[rule].fraction
        return fraction >= 1 or draw(self.seed, rule, *what) < fraction


def draw(*what: object) -> float:
    """Return a number from 0 to 1 that depends only on the arguments."""
    digest = blake2b("/".join(map(str, what)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
