"""What is promised about changes of addresses (A1 to A14), held against plain Python in every order of events.

Messages come twice and while cycles run, modules fail, lose their answers or act long after they were given up, and
the worker dies between any two of its steps.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pydantic import SecretStr

from dev.embedded.stack import EmbeddedStack
from domain.addresses import messages
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, OperationKind, OperationOutcome
from tests.support.address_oracle import ModuleOracle, build_operation
from tests.support.address_world import CycleHarness, Fault

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ACKS = [f"{module}_ack" for module in Module]
THRESHOLD = 8
EXAMPLES = 40
STEPS = 8
ROUNDS = 40
"""After this number of cycles without faults there must be nothing left to do."""

UPRNS = range(1, 6)
BUSY = [1_001, 1_004, *range(5_000, 5_400, 3)]
"""Addresses with orders in flight, in two of the modules."""

Said = tuple[Topic, dict[str, Any]]


def home(uprn: int) -> int:
    """The id of the address that had a UPRN first."""
    return 1_000 + uprn


uprns = st.sampled_from(UPRNS)
pairs = st.lists(uprns, min_size=2, max_size=2, unique=True)
known = st.builds(
    lambda uprn, first, n: (Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": home(first), "record": {"n": n}}),
    uprns,
    uprns,
    st.integers(0, 9),
)
fresh = st.builds(lambda uprn, n: (Topic.CREATE_UPDATE, {"uprn": uprn, "record": {"n": n}}), uprns, st.integers(0, 9))
deletes = st.builds(lambda uprn: (Topic.DELETE, {"uprn": uprn}), uprns)
swaps = st.builds(
    lambda pair, retires: (Topic.SWAP, {"uprn_1": pair[0], "uprn_2": pair[1], "delete_after": retires}),
    pairs,
    st.booleans(),
)
said = st.one_of(known, fresh, deletes, swaps, swaps)
batches = st.lists(said, max_size=6)
faults = st.lists(st.sampled_from([None, None, *Fault]), max_size=16)
deaths = st.lists(st.integers(0, 30), max_size=2)
breaks = st.lists(st.tuples(st.sampled_from(list(Module)), uprns), max_size=2)


class Promises(RuleBasedStateMachine):
    """Messages, cycles, faults and an operator, in any order."""

    world: CycleHarness
    run: Any

    @initialize()
    def begin(self) -> None:
        """Most addresses are there, in all modules."""
        self.run(self.world.begin(BUSY))
        self.sent: dict[str, Said] = {}
        self.publish(
            [(Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": home(uprn), "record": {}}) for uprn in UPRNS[1:]]
        )
        self.run(self.world.cycle())

    def publish(self, batch: list[Said]) -> None:
        """New messages."""
        delivered = []
        for topic, said in batch:
            number = f"m{len(self.sent)}"
            fresh = {"address_id": 5_000 + len(self.sent)} if topic is Topic.CREATE_UPDATE else {}
            self.sent[number] = topic, {**fresh, **said}
            delivered.append((topic, number, self.sent[number][1]))
        self.run(self.world.publish(delivered))

    @rule(batch=batches, faults=faults, breaks=breaks)
    def cycle(self, batch: list[Said], faults: list[Fault | None], breaks: list[tuple[Module, int]]) -> None:
        """New messages, and a cycle in which calls and operations fail."""
        self.publish(batch)
        self.world.modules.faults = list(faults)
        self.world.modules.broken = set(breaks)
        self.checked_cycle([], abandon=False)

    @rule(batch=batches, faults=faults, deaths=deaths, abandon=st.booleans())
    def deadly_cycle(self, batch: list[Said], faults: list[Fault | None], deaths: list[int], abandon: bool) -> None:
        """New messages, and a cycle in which calls fail and the worker dies."""
        self.publish(batch)
        self.world.modules.faults = list(faults)
        self.checked_cycle(deaths, abandon=abandon and bool(deaths))

    def checked_cycle(self, deaths: list[int], *, abandon: bool) -> None:
        """A cycle; what it may do to the log is looked at if it comes to its end."""
        before, known = self.run(self.world.rows()), len(self.world.cycles)
        may_be_away = any(self.world.modules.faults)
        if self.run(self.world.cycle(deaths, abandon=abandon)):
            self.check_cycle(before, known, may_be_away=may_be_away)
        self.world.modules.faults = []
        self.world.modules.broken = set()

    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        """Messages that were delivered before, done or not, archived or not."""
        if self.sent:
            numbers = data.draw(st.lists(st.sampled_from(sorted(self.sent)), min_size=1, max_size=5))
            self.run(self.world.publish([(self.sent[each][0], each, self.sent[each][1]) for each in numbers]))

    @rule()
    def arrive(self) -> None:
        """Calls that were given up long ago take effect now."""
        self.world.modules.arrive()

    @rule()
    def operate(self) -> None:
        """Retry all given-up messages."""
        self.run(self.world.retry())

    @invariant()
    def effects_are_single_and_in_order(self) -> None:
        """A5 and A7: nothing takes effect twice in a module, and what is of one sort in the order of ids."""
        assert set(self.world.count_effects().values()) <= {1}
        last: dict[tuple[Module, int, bool], int] = {}
        for module, operation in self.world.modules.effects:
            for uprn in {operation.uprn, operation.uprn_2 or operation.uprn}:
                sort = module, uprn, operation.kind is OperationKind.SWAP
                assert last.get(sort, 0) < operation.seq, (module, operation)
                last[sort] = operation.seq

    @invariant()
    def log_is_whole(self) -> None:
        """A6, A8, A9: each message has one row, whose flags agree with each other."""
        rows = self.run(self.world.rows())
        assert sorted(row["msg_no"] for row in rows.values()) == sorted(self.sent)
        for row in rows.values():
            acks = [row[ack] for ack in ACKS]
            assert row["retry_times"] <= self.world.settings.failed_cycles_max
            match row["proc_flag"]:
                case "Y":
                    assert row["topic"] != Topic.SWAP or not row["superseded_by"], "nothing stands for a swap"
                    assert acks == ["Y"] * 4 or row["superseded_by"] or row["reason"], row
                case "N":
                    assert "N" in acks or row["wait_reason"]["kind"] == "behind", row
                case None:
                    assert acks == [None] * 4, row

    @rule()
    def wait(self) -> None:
        """What waits for its time is due."""
        self.run(self.world.make_all_due())

    def check_cycle(self, before: dict[int, dict[str, Any]], known: int, *, may_be_away: bool) -> None:
        """What one whole cycle may and must do to the log."""
        rows = self.run(self.world.rows())
        [cycle] = self.world.cycles[known:]
        plan, limit = cycle.plan, self.world.settings.failed_cycles_max
        assert not [row for row in rows.values() if row["proc_flag"] == "P"], "A6: who owns it?"
        assert plan.loaded <= THRESHOLD, "A14"
        winners = [rows[id_]["uprn_1"] for step in (*plan.writes, *plan.deletes) for ids in step for id_ in ids]
        assert len(winners) == len(set(winners)), "A13"
        for id_, row in rows.items():
            was = before.get(id_, {"retry_times": 0, "proc_flag": None})
            if id_ in cycle.took and row["proc_flag"] == "N":
                lacked_before = bool((was.get("wait_reason") or {}).get("missing"))
                has_sides = lacked_before and not row["wait_reason"].get("missing")
                tried = 0 if has_sides else was["retry_times"]
                self.check_count(row, row["retry_times"] - tried, may_be_away=may_be_away)
            elif row["retry_times"] < was["retry_times"]:
                assert was["wait_reason"]["kind"] == "missing", "only an address that has appeared is worth a try more"
            else:
                assert row["retry_times"] == was["retry_times"], "A8: only who is tried can fail"
            if was["proc_flag"] == "N" and was["retry_times"] >= limit:
                assert id_ not in cycle.took, "A8: who is given up is not loaded"

    def check_count(self, row: dict[str, Any], more: int, *, may_be_away: bool) -> None:
        """A8: one more for each failed cycle since it had both sides; to wait, or to find a module away, is none."""
        match row["wait_reason"]["kind"]:
            case "behind":
                assert more == 0, row
            case "overtaken":
                assert row["retry_times"] == self.world.settings.failed_cycles_max, row
            case "failed" | "missing" if may_be_away:
                assert more in (0, 1), row
            case _:
                assert more == 1, row

    def teardown(self) -> None:
        """When all modules are well and an operator has cared for what was given up, all is done and all agree."""
        if not hasattr(self, "sent"):
            return
        self.world.modules.arrive()
        done, before = self.settle(), -1
        while done > before:
            self.run(self.world.make_all_due())
            self.run(self.world.retry())
            done, before = self.settle(), done
        rows = self.run(self.world.rows())
        self.effects_are_single_and_in_order()
        self.log_is_whole()
        self.agree(rows)

    def settle(self) -> int:
        """Cycles until there is nothing left to do; how many messages are done then."""
        for _ in range(ROUNDS):
            self.run(self.world.cycle())
            if not self.world.cycles[-1].plan.loaded:
                return sum(row["proc_flag"] == "Y" for row in self.run(self.world.rows()).values())
        raise AssertionError(f"there is work after {ROUNDS} cycles without faults")

    def agree(self, rows: dict[int, dict[str, Any]]) -> None:
        """A1, A10, A11: all modules are as plain Python is that applied what was done, in the order in which it was."""
        for row in rows.values():
            assert row["proc_flag"] in ("Y", "N"), row
            if row["proc_flag"] == "N":
                assert row["wait_reason"]["kind"] in ("missing", "refused", "behind", "overtaken"), row
                assert not row["wait_reason"].get("unsure"), row
        books = self.world.modules.books
        for module in Module:
            assert books[module].live == books[Module.ED].live, module
        expected = self.oracle(rows)
        assert expected.live == books[Module.ED].live
        listed = self.run(self.world.fetch("SELECT address_id FROM addr_logical_deletes WHERE purged_at IS NULL"))
        kept = {address_id for book in books.values() for address_id in book.logical}
        assert {row["address_id"] for row in listed} == kept, "A11"

    def oracle(self, rows: dict[int, dict[str, Any]]) -> ModuleOracle:
        """The recorded cycles, one message after the other."""
        book = ModuleOracle()
        for id_ in (id_ for cycle in self.world.cycles for _, id_ in cycle.done):
            row = rows[id_]
            if not row["superseded_by"] and not row["reason"]:
                operation = build_operation(id_, messages.parse_payload(*self.sent[row["msg_no"]]))
                assert book.apply(operation) is OperationOutcome.APPLIED, (operation, book)
        return book


@pytest.mark.long
async def test_the_promises_hold_in_every_order_of_events(stack: EmbeddedStack, database_url: str) -> None:
    """A1 to A11, A13 and A14."""
    # On a thread and a loop of its own: steps of a state machine are not async.
    await asyncio.to_thread(_play_machine, stack, database_url)


def _play_machine(stack: EmbeddedStack, database_url: str) -> None:
    loop = asyncio.new_event_loop()
    world = CycleHarness(
        stack.build_settings().database.model_copy(update={"url": SecretStr(database_url)}),
        threshold=THRESHOLD,
        group_messages_max=3,
    )

    class Machine(Promises):
        """In this world."""

        def __init__(self) -> None:
            self.world = world
            self.run = loop.run_until_complete
            super().__init__()

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(world.database.close())
        loop.close()
