"""A world of transfers: hosts, files, who asks for what, who cancels, and what goes wrong; all from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from tests.worlds import dice
from tests.worlds.flaws import Flaw, draw_flaw, draw_flaws
from tests.worlds.transfers.flaws import KINDS, TransferFlawGroup
from tests.worlds.transfers.options import pairwise_rows, plain_row

DISTINCT_WISHES_MAX = 8
"""The specs that a job takes in worlds; in the product 300."""
SUITE_WORLDS = 16
"""How many worlds have every flaw once: no group has more flaws."""
SLOW_SECONDS = 3.0


class HostForm(StrEnum):
    """What the id of a host's agent looks like."""

    PLAIN = "plain"
    OLD = "old"  # cloud and IP
    SOURCE = "source"  # the host that sends


class WorldHost(BaseModel):
    """A host or a container on it."""

    model_config = ConfigDict(frozen=True)

    number: int
    form: HostForm = HostForm.PLAIN
    is_container: bool = False


class WorldFile(BaseModel):
    """A requested file: where it is in the repository, and its content."""

    model_config = ConfigDict(frozen=True)

    path: int
    content: int


class PlannedRequest(BaseModel):
    """One request: a file for some hosts."""

    model_config = ConfigDict(frozen=True)

    file: int
    hosts: tuple[int, ...]
    options: dict[str, str]
    delay_seconds: float = 0.0
    own_folder: int = 0
    """Where wishes must differ, each has a folder of its own."""


class Cancellation(BaseModel):
    """One cancellation, of a task or of a whole job."""

    model_config = ConfigDict(frozen=True)

    wish: int
    host: int | None
    """None for all that the wish's job has."""
    delay_seconds: float
    """After the wish was accepted."""


class TransferWorld(BaseModel):
    """All that decides what comes out."""

    model_config = ConfigDict(frozen=True)

    seed: int
    hosts: tuple[WorldHost, ...]
    files: tuple[WorldFile, ...]
    wishes: tuple[PlannedRequest, ...]
    cancels: tuple[Cancellation, ...] = ()
    download_seconds: float = 0.2
    flaws: tuple[Flaw, ...] = ()

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""
        return [flaw.name for flaw in self.flaws]

    @property
    def choices(self) -> dict[str, str]:
        """The options of its first request."""
        cancelled = "nothing" if not self.cancels else "a job" if self.cancels[0].host is None else "a task"
        return {**self.wishes[0].options, "cancelled": cancelled}

    def flaw(self, *names: str) -> Flaw | None:
        """Return the flaw with one of these names, if the world has it."""
        return next((flaw for flaw in self.flaws if flaw.name in names), None)

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return self.flaw(*names) is not None

    def group(self, group: TransferFlawGroup) -> Flaw | None:
        """Return the flaw of a group, if the world has one."""
        return next((flaw for flaw in self.flaws if KINDS[flaw.name].group is group), None)

    def is_struck(self, host: int) -> bool:
        """Whether the flaw of targets, if there is one, hits a host: at least one of those that it can hit."""
        flaw = self.group(TransferFlawGroup.TARGET)
        if flaw is None:
            return False
        able = [each.number for each in self.hosts if can_strike(flaw.name, each)]
        struck = {number for number in able if dice.share(self.seed, flaw.name, number) < 0.4}
        return host in (struck or able[: 1 + flaw.dial % 2])


def can_strike(flaw: str, host: WorldHost) -> bool:
    """Whether a flaw of targets can hit a host."""
    match flaw:
        case "container_gone":
            return host.is_container
        case "old_agent":
            return host.form is HostForm.OLD
        case _:
            return True


def draw_round(seed: int, count: int) -> list[tuple[str, ...]]:
    """Distribute all flaws over the worlds, each once and never two of a group in one world."""
    hands: list[tuple[str, ...]] = [()] * count
    place = 0
    for group in TransferFlawGroup:
        names = [name for name, kind in KINDS.items() if kind.group is group]
        for name in dice.stream(seed, "round", group).sample(names, len(names)):
            hands[place % count] += (name,)
            place += 1
    return hands


def draw_world(seed: int, family: Iterable[str] | None = None, forced: Iterable[str] = ()) -> TransferWorld:
    """Draw the world of a seed.

    Args:
        seed: The same makes the same world.
        family: Flaws of which it has one at least; by default it may have any, or none.
        forced: The flaws that it has, and no others; by default they are drawn.
    """
    named = tuple(draw_flaw(seed, name, KINDS[name]) for name in forced)
    flaws = named or draw_flaws(seed, KINDS, list(TransferFlawGroup), family)
    hosts = _draw_hosts(seed, {flaw.name for flaw in flaws})
    names = {flaw.name for flaw in flaws}
    files = _draw_files(seed, names)
    wishes = _draw_many_wishes(seed, hosts) if "many_wishes" in names else _draw_wishes(seed, hosts, files, names)
    world = TransferWorld(seed=seed, hosts=hosts, files=files, wishes=wishes, flaws=flaws)
    return world.model_copy(update={"cancels": _draw_cancels(world), "download_seconds": _draw_pace(world)})


def _draw_pace(world: TransferWorld) -> float:
    """What flaps must be seen while it does, and what is cancelled must be under way; three tries must fit in."""
    fails_first = any(flaw.passes for flaw in world.flaws)
    if (
        world.has("flaps")
        or (fails_first and world.group(TransferFlawGroup.TERMINATE))
        or dice.share(world.seed, "slow") < 0.2
    ):
        return SLOW_SECONDS
    return 2 * SLOW_SECONDS if world.group(TransferFlawGroup.TERMINATE) else dice.pick((0.05, 0.3), world.seed, "pace")


def _draw_hosts(seed: int, flaws: set[str]) -> tuple[WorldHost, ...]:
    count = dice.pick((1, 2, 3, 3, 4, 5, 7, 12), seed, "hosts")
    hosts = [
        WorldHost(
            number=number,
            form=dice.pick((HostForm.PLAIN, HostForm.PLAIN, HostForm.OLD), seed, "form", number),
            is_container=dice.share(seed, "container", number) < 0.3,
        )
        for number in range(count)
    ]
    if "container_gone" in flaws:
        hosts[-1] = hosts[-1].model_copy(update={"is_container": True})
    if "old_agent" in flaws:
        hosts[-1] = hosts[-1].model_copy(update={"form": HostForm.OLD})
    if "source_is_target" in flaws:
        hosts.append(WorldHost(number=count, form=HostForm.SOURCE))
    return tuple(hosts)


def _draw_files(seed: int, flaws: set[str]) -> tuple[WorldFile, ...]:
    """Two files may have one content, and one file two contents: a new version came within the window."""
    known = (WorldFile(path=0, content=0), WorldFile(path=0, content=1), WorldFile(path=1, content=0))
    if "two_contents" in flaws:
        return known
    return known[: dice.pick((1, 1, 2, 3), seed, "files")]


def _draw_wishes(
    seed: int, hosts: tuple[WorldHost, ...], files: tuple[WorldFile, ...], flaws: set[str]
) -> tuple[PlannedRequest, ...]:
    rows, numbers = pairwise_rows(), [host.number for host in hosts]
    wishes = []
    for place in range(dice.pick((1, 2, 3), seed, "wishes")):
        some = dice.stream(seed, "targets", place).sample(
            numbers, dice.stream(seed, "some", place).randint(1, len(numbers))
        )
        wishes.append(
            PlannedRequest(
                file=dice.stream(seed, "file", place).randrange(len(files)),
                hosts=tuple(numbers if place == 0 else some),
                options=dict(rows[(seed + place * 7) % len(rows)]),
                delay_seconds=dice.pick((0.0, 0.0, 0.1, 0.5), seed, "delay", place),
            )
        )
    if "asked_twice" in flaws:
        first = wishes[0]
        wishes[0] = first.model_copy(update={"hosts": (*first.hosts, first.hosts[0])})
        wishes.append(first)
    if "two_contents" in flaws:
        wishes[0] = wishes[0].model_copy(update={"file": 0})
        wishes.append(wishes[0].model_copy(update={"file": 1}))
    return tuple(wishes)


def _draw_many_wishes(seed: int, hosts: tuple[WorldHost, ...]) -> tuple[PlannedRequest, ...]:
    """More different wishes for one file than a job takes; perhaps more than four windows take."""
    count = dice.pick((1, 2, 4, DISTINCT_WISHES_MAX, 2 * DISTINCT_WISHES_MAX, 4 * DISTINCT_WISHES_MAX), seed, "many")
    return tuple(
        PlannedRequest(
            file=0,
            hosts=(hosts[place % len(hosts)].number,),
            options={**plain_row(), "request": dice.pick(("batch", "single"), seed, "request", place)},
            delay_seconds=dice.pick((0.0, 0.0, 0.05), seed, "delay", place),
            own_folder=place + 1,
        )
        for place in range(DISTINCT_WISHES_MAX + count)
    )


def _draw_cancels(world: TransferWorld) -> tuple[Cancellation, ...]:
    """A fifth of the worlds has some, and all those in which cancelling goes wrong."""
    seed = world.seed
    if not (world.group(TransferFlawGroup.TERMINATE) or dice.share(seed, "cancels") < 0.2):
        return ()
    count = dice.pick((1, 1, 2), seed, "cancel count")
    cancels = []
    for place in range(count):
        wish = dice.stream(seed, "cancelled", place).randrange(len(world.wishes))
        hosts = world.wishes[wish].hosts
        late = (1.5, 2.0, 3.0)
        when = dice.pick(late if world.group(TransferFlawGroup.TERMINATE) else (0.0, *late), seed, "cancel", place)
        whole = dice.share(seed, "whole", place) < 0.5
        host = None if whole else dice.pick(hosts, seed, "cancelled host", place)
        cancels.append(Cancellation(wish=wish, host=host, delay_seconds=when))
    return tuple(cancels)


def list_smaller(world: TransferWorld) -> list[TransferWorld]:
    """List worlds that are a step smaller: a flaw, a cancellation, a wish or a host less, a plainer option."""
    flaws = [_without(world, "flaws", at) for at in range(len(world.flaws))]
    cancels = [_without(world, "cancels", at) for at in range(len(world.cancels))]
    used = {cancel.wish for cancel in world.cancels}
    wishes = []
    if len(world.wishes) > 1 and len(world.wishes) - 1 not in used:
        wishes.append(_without(world, "wishes", len(world.wishes) - 1))
    named = {cancel.host for cancel in world.cancels}
    hosts = [
        _with_wish(world, place, {"hosts": wish.hosts[:-1]})
        for place, wish in enumerate(world.wishes)
        if len(wish.hosts) > 1 and wish.hosts[-1] not in named
    ]
    plainer = [
        _with_wish(world, place, {"options": {**wish.options, name: value}})
        for place, wish in enumerate(world.wishes)
        for name, value in plain_row().items()
        if wish.options[name] != value
    ]
    return [*flaws, *cancels, *wishes, *hosts, *plainer]


def _without(world: TransferWorld, field: str, at: int) -> TransferWorld:
    values = getattr(world, field)
    return world.model_copy(update={field: values[:at] + values[at + 1 :]})


def _with_wish(world: TransferWorld, place: int, changes: dict[str, Any]) -> TransferWorld:
    changed = world.wishes[place].model_copy(update=changes)
    return world.model_copy(update={"wishes": (*world.wishes[:place], changed, *world.wishes[place + 1 :])})
