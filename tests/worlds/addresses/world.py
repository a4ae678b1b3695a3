"""A world of addresses: its UPRNs, what is published in which rounds, what goes wrong, and what operators do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from domain.addresses.operations import Module
from tests.worlds import dice
from tests.worlds.addresses import options
from tests.worlds.addresses.flaws import KINDS, Group
from tests.worlds.flaws import Flaw, draw_flaws

NEVER, LATER = 90, 91
"""A UPRN that is never created, and one that is created rounds after a swap named them."""
FOLLOWERS = 3
DEAD_LETTERED = 5
"""How often Pub/Sub may dead-letter one message at least."""


class MessageKind(StrEnum):
    """What a message is about."""

    SWAP = "swap"
    CREATE = "create"
    DELETE = "delete"
    POISON = "poison"


class PlannedMessage(BaseModel):
    """One message."""

    model_config = ConfigDict(frozen=True)

    kind: MessageKind
    one: int
    """The number of a UPRN in its world."""
    other: int | None = None
    delete_after: bool = False
    address: int = 0
    """Of a createUpdate: which of the addresses of its UPRN, 0 or 1."""
    times: int = 1
    """How often it is delivered."""
    has_event: bool = False
    """Whether it names its event."""
    is_repeated: bool = False
    """Whether its publisher repeats it under another number."""
    poison: str = ""
    """Of a poison: which flaw."""
    loses: tuple[str, int] | None = None
    """Before it is published, a module loses the address of a UPRN, as no operation would."""
    is_dropped: bool = False
    """Whether it is never delivered."""
    is_unread: bool = False
    """Whether the first connection that delivers it ends before the answer."""


class Round(BaseModel):
    """Messages that are published one after the other."""

    model_config = ConfigDict(frozen=True)

    messages: tuple[PlannedMessage, ...]
    waits: bool
    """Whether the next round comes only when this one has settled."""


class Operator(StrEnum):
    """What operators do with what was given up, once all is mended."""

    NONE = "none"
    RETRY = "retry"
    CHAIN = "retry chain"
    SKIP = "skip"


class World(BaseModel):
    """All that decides what comes out."""

    model_config = ConfigDict(frozen=True)

    seed: int
    uprns: int
    rounds: tuple[Round, ...]
    operator: Operator = Operator.NONE
    flaws: tuple[Flaw, ...] = ()
    options: dict[str, str] = Field(default_factory=options.plain_row)
    """Of cycles and modules."""
    has_orders: bool = False
    """Whether OD has orders in flight of all addresses until the messages are applied."""

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""
        return [flaw.name for flaw in self.flaws]

    @property
    def choices(self) -> dict[str, str]:
        """What else reports distinguish."""
        return {
            "operator": self.operator.value,
            "rounds": str(len(self.rounds)),
            "orders": "in flight" if self.has_orders else "none",
            **self.options,
        }

    @property
    def tries(self) -> int:
        """Failed cycles after which a message is given up."""
        return int(self.options["failed_cycles_max"])

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return any(name in names for name in self.flaw_names)

    def group(self, group: Group) -> Flaw | None:
        """Return the flaw of a group, if the world has one."""
        return next((flaw for flaw in self.flaws if KINDS[flaw.name].group is group), None)


def draw_world(seed: int, family: Iterable[str] | None = None) -> World:
    """Draw the world of a seed.

    Args:
        seed: The same makes the same world.
        family: Flaws of which it has one at least; by default it may have any, or none.
    """
    flaws = draw_flaws(seed, KINDS, list(Group), family)
    uprns = dice.stream(seed, "uprns").randint(3, 7)
    names = {flaw.name for flaw in flaws}
    rounds = [_draw_round(seed, number, uprns) for number in range(dice.stream(seed, "rounds").randint(2, 5))]
    rounds[0] = _draw_first_round(seed, uprns, names)
    rounds = _add_swaps(seed, rounds, uprns, names)
    return World(
        seed=seed,
        uprns=uprns,
        rounds=tuple(_add_delivery_flaws(seed, number, each, names) for number, each in enumerate(rounds)),
        operator=dice.pick(list(Operator), seed, "operator"),
        flaws=flaws,
        options=options.draw_row(seed),
        has_orders=dice.share(seed, "orders") < 0.4,
    )


def _draw_first_round(seed: int, uprns: int, names: set[str]) -> Round:
    """Most UPRNs come into being in the first round."""
    messages = [
        PlannedMessage(kind=MessageKind.CREATE, one=uprn)
        for uprn in range(uprns)
        if dice.share(seed, "born", uprn) < 0.85
    ]
    if "delete_first" in names:
        messages.insert(0, PlannedMessage(kind=MessageKind.DELETE, one=dice.stream(seed, "deleted").randrange(uprns)))
    if not messages:
        messages = [PlannedMessage(kind=MessageKind.CREATE, one=0)]
    return Round(messages=tuple(messages), waits=dice.share(seed, "waits", 0) < 0.6)


def _draw_round(seed: int, number: int, uprns: int) -> Round:
    draw = dice.stream(seed, "round", number)
    messages = []
    for _ in range(draw.randint(1, 5)):
        kind, (one, other) = draw.random(), draw.sample(range(uprns), 2)
        if kind < 0.45:
            messages.append(
                PlannedMessage(kind=MessageKind.SWAP, one=one, other=other, delete_after=draw.random() < 0.2)
            )
        elif kind < 0.75:
            messages.append(PlannedMessage(kind=MessageKind.CREATE, one=one, address=draw.randrange(2)))
        else:
            messages.append(PlannedMessage(kind=MessageKind.DELETE, one=one))
    return Round(messages=tuple(messages), waits=dice.share(seed, "waits", number) < 0.5)


def _add_swaps(seed: int, rounds: list[Round], uprns: int, names: set[str]) -> list[Round]:
    """Put in swaps that share a UPRN: behind one that lacks a side for good, or for some rounds."""
    draw = dice.stream(seed, "swaps")
    first, *others = draw.sample(range(uprns), min(uprns, 1 + FOLLOWERS))
    followers = tuple(PlannedMessage(kind=MessageKind.SWAP, one=first, other=other) for other in others)
    born = tuple(PlannedMessage(kind=MessageKind.CREATE, one=uprn) for uprn in (first, *others))
    if "swap_chain" in names:
        return [*rounds[:1], Round(messages=(*born, *followers, *reversed(followers)), waits=False), *rounds[1:]]
    if "hopeless_swap" in names:
        hopeless = PlannedMessage(kind=MessageKind.SWAP, one=first, other=NEVER)
        return [*rounds[:1], Round(messages=(*born, hopeless, *followers), waits=True), *rounds[1:]]
    if "swap_between_writes" in names:
        one, other = first, others[0]
        between = (
            PlannedMessage(kind=MessageKind.SWAP, one=one, other=other),
            PlannedMessage(kind=MessageKind.CREATE, one=one, address=1),
        )
        return [
            *rounds[:1],
            Round(messages=(*born, *between, PlannedMessage(kind=MessageKind.DELETE, one=other)), waits=False),
            *rounds[1:],
        ]
    late = PlannedMessage(kind=MessageKind.CREATE, one=LATER)
    waiting = (PlannedMessage(kind=MessageKind.SWAP, one=first, other=LATER), *followers)
    if "side_comes_later" in names:
        return [
            *rounds[:1],
            Round(messages=(*born, *waiting), waits=True),
            *rounds[1:],
            Round(messages=(late,), waits=True),
        ]
    if "side_missing_in_one" in names:
        there = Round(messages=(*born, late), waits=True)
        lost = (waiting[0].model_copy(update={"loses": (dice.pick(list(Module), seed, "loses"), LATER)}), *followers)
        return [*rounds[:1], there, Round(messages=lost, waits=True), *rounds[1:], Round(messages=(late,), waits=True)]
    return rounds


def _add_delivery_flaws(seed: int, number: int, each: Round, names: set[str]) -> Round:
    """Say of one message of a round, or of all of the first, how it is published and delivered."""
    messages = list(each.messages)
    chosen = dice.stream(seed, "chosen", number).randrange(len(messages))
    changes: dict[str, dict[str, object]] = {
        "delivered_twice": {"times": 2},
        "answer_unread": {"is_unread": True},
        "event_repeated": {"has_event": True, "is_repeated": True},
        "event_repeated_unmarked": {"is_repeated": True},
        "never_delivered": {"is_dropped": True},
    }
    for name in names & changes.keys():
        if name != "never_delivered" or number == 1:
            messages[chosen] = messages[chosen].model_copy(update=changes[name])
    if "snapshot_after_changes" in names and number == 0:
        messages = [one.model_copy(update={"has_event": one.kind is MessageKind.CREATE}) for one in messages]
    if number == 1:
        messages[chosen:chosen] = _draw_poisons(names)
    return each.model_copy(update={"messages": tuple(messages)})


def _draw_poisons(names: set[str]) -> list[PlannedMessage]:
    """Return messages that cannot be read, dead-lettered several times where that is the flaw."""
    poisons = [name for name, kind in KINDS.items() if kind.group is Group.POISON and name in names]
    return [
        PlannedMessage(
            kind=MessageKind.POISON, one=0, poison=name, times=DEAD_LETTERED if name == "dead_lettered" else 1
        )
        for name in poisons
    ]


def list_smaller(world: World) -> list[World]:
    """List worlds that are a step smaller: a flaw, a round or a message less, no operator, a plainer option."""
    flaws = [
        world.model_copy(update={"flaws": world.flaws[:at] + world.flaws[at + 1 :]}) for at in range(len(world.flaws))
    ]
    rounds = [_with_rounds(world, world.rounds[:at] + world.rounds[at + 1 :]) for at in range(len(world.rounds))]
    messages = [
        _with_rounds(world, (*world.rounds[:at], _remove_message(each, place), *world.rounds[at + 1 :]))
        for at, each in enumerate(world.rounds)
        for place in range(len(each.messages))
        if len(each.messages) > 1
    ]
    idle = [world.model_copy(update={"operator": Operator.NONE})] if world.operator is not Operator.NONE else []
    plain = options.plain_row()
    plainer = [
        world.model_copy(update={"options": {**world.options, name: value}})
        for name, value in plain.items()
        if world.options[name] != value
    ]
    no_orders = [world.model_copy(update={"has_orders": False})] if world.has_orders else []
    return [*idle, *no_orders, *flaws, *plainer, *(rounds if len(world.rounds) > 1 else []), *messages]


def _with_rounds(world: World, rounds: tuple[Round, ...]) -> World:
    return world.model_copy(update={"rounds": rounds})


def _remove_message(each: Round, place: int) -> Round:
    return each.model_copy(update={"messages": each.messages[:place] + each.messages[place + 1 :]})
