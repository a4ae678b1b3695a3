"""Judging: what the log tells of a world's messages, held against what its modules really did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module, Operation, OperationOutcome
from stores.addresses.acknowledgements import NEEDLESS_REASON
from tests.support.address_oracle import ModuleOracle
from tests.worlds.addresses.flaws import KINDS
from tests.worlds.addresses.naming import Names
from tests.worlds.addresses.seen import Seen, Told
from tests.worlds.flaws import See
from tests.worlds.verdict import Ending, Verdict

TOOK_EFFECT = (OperationOutcome.APPLIED, OperationOutcome.LOGICAL)


def judge_world(names: Names, seen: Seen) -> Verdict:
    """Say how a world ended: as its worst part did."""
    if seen.late:
        return Verdict(Ending.LATE, seen.late, seen.fired)
    judging = _Judging(names, seen)
    for ending, found in (
        (Ending.SILENT, judging.list_differences()),
        (Ending.WRONG_CAUSE, judging.list_wrong_causes()),
        (Ending.NEEDLESS, judging.list_needless_failures()),
    ):
        if why := "; ".join(found):
            return Verdict(ending, why, seen.fired)
    left = [each for each in seen.told if not each.is_done]
    if left:
        causes = ", ".join(f"{count} {kind}" for kind, count in Counter(str(each.kind) for each in left).items())
        return Verdict(Ending.WARNED if judging.list_apart() else Ending.FAILED, causes, seen.fired)
    if any(KINDS[name].see is See.NOBODY for name in seen.fired):
        return Verdict(Ending.INVISIBLE, "what was published is not what was meant", seen.fired)
    is_proof = seen.fired or not names.world.flaws
    return Verdict(Ending.EQUAL if is_proof else Ending.UNKNOWN, "", seen.fired)


@dataclass(frozen=True)
class _Judging:
    names: Names
    seen: Seen

    @cached_property
    def _by_id(self) -> Mapping[int, Told]:
        return {each.id: each for each in self.seen.told}

    @cached_property
    def _operations(self) -> Mapping[int, Operation]:
        """What was published, under the ids that the log gave."""
        published = {each.number: each for each in self.names.accepted}
        return {
            each.id: published[each.number].operation(each.id) for each in self.seen.told if each.number in published
        }

    @cached_property
    def _where(self) -> Mapping[int, frozenset[str]]:
        """By message: the modules in which it took effect."""
        return {
            each.id: frozenset(module for module in Module if each.id in self.seen.applied[module])
            for each in self.seen.told
        }

    def list_differences(self) -> Iterator[str]:
        """List what is not as it is told, and what nobody tells."""
        yield from self._compare_with_published()
        if set(self._operations) != set(self._by_id):
            return
        for each in self.seen.told:
            yield from self._check_told(each)
        for module in Module:
            yield from self._replay(module)
        yield from self._compare_orders()
        # What waits for a person may have been applied unheard, and then it is not known what a module keeps.
        if not self._open and not self.seen.lost and self.seen.kept - self.seen.listed:
            yield f"a module keeps {sorted(self.seen.kept)} as deleted logically, listed is {sorted(self.seen.listed)}"
        for uprn in self.list_apart():
            if not any(self._explains(each, uprn) for each in self.seen.told):
                yield f"modules differ in {uprn}, and no message of it waits for a person"

    def _compare_with_published(self) -> Iterator[str]:
        wanted = [(each.number, each.topic) for each in self.names.accepted]
        found = [(each.number, each.topic) for each in self.seen.told]
        if wanted != found:
            yield f"published was {wanted}, in the log and its history is {found}"
        poisons = sorted(each.number for part in self.names.rounds for each in part if each.is_quarantined)
        if poisons != sorted(self.seen.refused):
            yield f"{poisons} cannot be read, in quarantine is {self.seen.refused}"
        forgotten, compared = sorted(self.seen.forgotten), sorted(self.seen.found)
        if self.names.world.has("module_forgets") and forgotten != compared:
            yield f"a module forgot {forgotten}, the comparison of modules tells {compared}"

    def _check_told(self, each: Told) -> Iterator[str]:
        where = self._where[each.id]
        if each.acked - where:
            yield f"{_name(each)} is told as applied in {sorted(each.acked - where)}, and was not"
        if not each.is_done:
            if where - each.acked - each.unsure:
                yield f"{_name(each)} is not done, took effect in {sorted(where)}, and says {sorted(each.acked)}"
        elif each.id in self.seen.skipped:
            if where - each.acked:
                yield f"{_name(each)} was skipped as untouched, and took effect in {sorted(where)}"
        elif len(each.acked) < len(Module):
            yield from self._check_superseded(each)

    def _check_superseded(self, each: Told) -> Iterator[str]:
        if each.is_swap:
            yield f"{_name(each)} is a swap and is told as done, acknowledged by {sorted(each.acked)} only"
        elif each.superseded_by is None:
            is_deleted = any(
                operation.delete_after and operation.uprn == each.uprns[0] and id_ > each.id and self._where[id_]
                for id_, operation in self._operations.items()
            )
            if each.reason != NEEDLESS_REASON or not is_deleted:
                yield f"{_name(each)} is told as done, and only {sorted(each.acked)} have it: {each.reason}"
        elif why := self._doubts(each):
            yield f"{_name(each)} is told as superseded by {each.superseded_by}, {why}"

    def _doubts(self, each: Told) -> str:
        """Say what is wrong with the message that superseded another; whether that one is done is seen by itself."""
        later = self._by_id.get(each.superseded_by or 0)
        if later is None or later.is_swap or later.uprns != each.uprns or later.id <= each.id:
            return "which is no later createUpdate or delete of its UPRN"
        return ""

    def _replay(self, module: Module) -> Iterator[str]:
        """Do in plain Python what a module did, in its order."""
        oracle = ModuleOracle()
        for id_ in self.seen.applied[module]:
            if id_ not in self._operations:
                yield f"{module} applied {id_}, which is no message of this world"
                return
            if (outcome := oracle.apply(self._operations[id_])) not in TOOK_EFFECT:
                yield f"{module} applied {_name(self._by_id[id_])}, which was {outcome} then"
        live = {uprn: tuple(entry) for uprn, entry in self.seen.live[module].items()}
        if oracle.live != live:
            yield f"{module} has {live}, its operations make {oracle.live}"

    def _compare_orders(self) -> Iterator[str]:
        for one, other in combinations(Module, 2):
            for uprn in {uprn for each in self.seen.told for uprn in each.uprns}:
                orders = [
                    [
                        id_
                        for id_ in self.seen.applied[module]
                        if id_ in self._by_id and uprn in self._by_id[id_].uprns and {one, other} <= self._where[id_]
                    ]
                    for module in (one, other)
                ]
                if orders[0] != orders[1]:
                    yield f"operations of {uprn} were applied in {one} as {orders[0]}, in {other} as {orders[1]}"

    def list_apart(self) -> list[int]:
        """List the UPRNs that modules have differently."""
        uprns = sorted({uprn for live in self.seen.live.values() for uprn in live})
        return [uprn for uprn in uprns if any(self._has(one, uprn) != self._has("ed", uprn) for one in Module)]

    def _has(self, module: str, uprn: int) -> object:
        return self.seen.live[module].get(uprn)

    def _explains(self, each: Told, uprn: int) -> bool:
        """Whether a message that waits for a person names the UPRN and says that modules may differ there."""
        earlier = [self._where[other.id] for other in self.seen.told if other.superseded_by == each.id]
        is_touched = each.is_touched or any(earlier)
        return uprn in each.uprns and is_touched and (not each.is_done or each.id in self.seen.skipped)

    def list_wrong_causes(self) -> Iterator[str]:
        """List what is given up, or queues, for a cause that is none."""
        for each in self._open:
            if each.kind == "missing" and not any(
                uprn not in self.seen.live[module] for uprn in each.uprns for module in Module
            ):
                yield f"{_name(each)} is given up for want of {each.missing}, and all modules have it"
            if each.kind == "overtaken" and not self._is_overtaken(each):
                yield f"{_name(each)} is told as overtaken, and no later swap of its addresses took effect"
            if each.kind == "behind" and each.state is MessageState.FAILED and not self._is_held(each):
                yield f"{_name(each)} queues behind {each.behind}, which no module has begun"
            if each.kind is None:
                yield f"{_name(each)} is {each.state} without a cause"

    def _is_overtaken(self, each: Told) -> bool:
        return each.is_swap and any(
            other.is_swap and other.id > each.id and self._where[other.id] and set(other.uprns) & set(each.uprns)
            for other in self.seen.told
        )

    def _is_held(self, each: Told) -> bool:
        """Whether it queues behind one that has begun, or behind one that does so in turn."""
        ahead = self._by_id.get(each.behind or 0)
        if ahead is None or not set(ahead.uprns) & set(each.uprns) or ahead.is_done:
            return False
        has_begun = ahead.is_touched or any(other.superseded_by == ahead.id for other in self.seen.told)
        return has_begun or (ahead.kind == "behind" and ahead.state is not MessageState.GIVEN_UP)

    def list_needless_failures(self) -> Iterator[str]:
        """List what is given up although nothing of its own went wrong."""
        for each in self._open:
            if each.state is not MessageState.GIVEN_UP:
                continue
            if each.kind == "behind":
                yield f"{_name(each)} is given up while it queues behind {each.behind}"
            if never_sent := [module for module in each.unsure if each.id not in self.seen.sent[module]]:
                yield f"{_name(each)} is given up, and holds others because of {never_sent}, which never got it"
            if each.kind in ("failed", "refused") and (each.id not in self.seen.hit or self.seen.retried):
                yield f"{_name(each)} is given up as {each.kind}, and nothing hits its UPRNs"

    @property
    def _open(self) -> Sequence[Told]:
        return [each for each in self.seen.told if not each.is_done]


def _name(each: Told) -> str:
    short = {Topic.SWAP: "swap", Topic.CREATE_UPDATE: "createUpdate", Topic.DELETE: "delete"}[each.topic]
    return f"{short} {each.id} of {'/'.join(map(str, each.uprns))}"
