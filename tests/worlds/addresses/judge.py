"""Judge a world: compare what the log reports of its messages with what its modules really did."""

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
from tests.worlds.addresses.observation import MessageReport, Observation
from tests.worlds.addresses.publications import Names
from tests.worlds.flaws import See
from tests.worlds.verdict import Ending, Verdict

TOOK_EFFECT = (OperationOutcome.APPLIED, OperationOutcome.LOGICAL)


def judge_world(names: Names, observation: Observation) -> Verdict:
    """Say how a world ended: as its worst part did."""
    if observation.late:
        return Verdict(Ending.LATE, observation.late, observation.fired)
    judging = _Judge(names, observation)
    for ending, found in (
        (Ending.SILENT, judging.list_differences()),
        (Ending.WRONG_CAUSE, judging.list_wrong_causes()),
        (Ending.NEEDLESS, judging.list_needless_failures()),
    ):
        if why := "; ".join(found):
            return Verdict(ending, why, observation.fired)
    left = [each for each in observation.reports if not each.is_done]
    if left:
        causes = ", ".join(f"{count} {kind}" for kind, count in Counter(str(each.kind) for each in left).items())
        return Verdict(Ending.WARNED if judging.list_apart() else Ending.FAILED, causes, observation.fired)
    if any(KINDS[name].see is See.NOBODY for name in observation.fired):
        return Verdict(Ending.INVISIBLE, "what was published is not what was meant", observation.fired)
    is_proof = observation.fired or not names.world.flaws
    return Verdict(Ending.EQUAL if is_proof else Ending.UNKNOWN, "", observation.fired)


@dataclass(frozen=True)
class _Judge:
    names: Names
    observation: Observation

    @cached_property
    def _by_id(self) -> Mapping[int, MessageReport]:
        return {each.id: each for each in self.observation.reports}

    @cached_property
    def _operations(self) -> Mapping[int, Operation]:
        """What was published, under the ids that the log gave."""
        published = {each.number: each for each in self.names.accepted}
        return {
            each.id: published[each.number].operation(each.id)
            for each in self.observation.reports
            if each.number in published
        }

    @cached_property
    def _effects_by_message(self) -> Mapping[int, frozenset[str]]:
        """By message: the modules in which it took effect."""
        return {
            each.id: frozenset(module for module in Module if each.id in self.observation.applied[module])
            for each in self.observation.reports
        }

    def list_differences(self) -> Iterator[str]:
        """List differences between reports, modules and what was published, which no message explains."""
        yield from self._compare_with_published()
        if set(self._operations) != set(self._by_id):
            return
        for each in self.observation.reports:
            yield from self._check_report(each)
        for module in Module:
            yield from self._replay(module)
        yield from self._compare_orders()
        # What waits for a person may have been applied unheard, and then it is not known what a module keeps.
        kept, listed = self.observation.kept, self.observation.listed
        if not self._unfinished and not self.observation.lost and kept - listed:
            yield f"a module keeps {sorted(kept)} as deleted logically, listed is {sorted(listed)}"
        for uprn in self.list_apart():
            if not any(self._explains(each, uprn) for each in self.observation.reports):
                yield f"modules differ in {uprn}, and no message of it waits for a person"

    def _compare_with_published(self) -> Iterator[str]:
        published = [(each.number, each.topic) for each in self.names.accepted]
        found = [(each.number, each.topic) for each in self.observation.reports]
        if published != found:
            yield f"published was {published}, in the log and its history is {found}"
        poisons = sorted(each.number for part in self.names.rounds for each in part if each.is_quarantined)
        if poisons != sorted(self.observation.refused):
            yield f"{poisons} cannot be read, in quarantine is {self.observation.refused}"
        forgotten, compared = sorted(self.observation.forgotten), sorted(self.observation.found)
        if self.names.world.has("module_forgets") and forgotten != compared:
            yield f"a module forgot {forgotten}, the comparison of modules reports {compared}"

    def _check_report(self, each: MessageReport) -> Iterator[str]:
        where = self._effects_by_message[each.id]
        if each.acked - where:
            yield f"{_describe(each)} is reported as applied in {sorted(each.acked - where)}, and was not"
        if not each.is_done:
            if where - each.acked - each.unsure:
                yield f"{_describe(each)} is not done, took effect in {sorted(where)}, and says {sorted(each.acked)}"
        elif each.id in self.observation.skipped:
            if where - each.acked:
                yield f"{_describe(each)} was skipped as untouched, and took effect in {sorted(where)}"
        elif len(each.acked) < len(Module):
            yield from self._check_superseded(each)

    def _check_superseded(self, each: MessageReport) -> Iterator[str]:
        if each.is_swap:
            yield f"{_describe(each)} is a swap and is reported as done, acknowledged by {sorted(each.acked)} only"
        elif each.superseded_by is None:
            is_deleted = any(
                operation.delete_after
                and operation.uprn == each.uprns[0]
                and id_ > each.id
                and self._effects_by_message[id_]
                for id_, operation in self._operations.items()
            )
            if each.reason != NEEDLESS_REASON or not is_deleted:
                yield f"{_describe(each)} is reported as done, and only {sorted(each.acked)} have it: {each.reason}"
        elif why := self._describe_wrong_successor(each):
            yield f"{_describe(each)} is reported as superseded by {each.superseded_by}, {why}"

    def _describe_wrong_successor(self, each: MessageReport) -> str:
        """Say what is wrong with the message that superseded another; whether that one is done is seen by itself."""
        later = self._by_id.get(each.superseded_by or 0)
        if later is None or later.is_swap or later.uprns != each.uprns or later.id <= each.id:
            return "which is no later createUpdate or delete of its UPRN"
        return ""

    def _replay(self, module: Module) -> Iterator[str]:
        """Do in plain Python what a module did, in its order."""
        oracle = ModuleOracle()
        for id_ in self.observation.applied[module]:
            if id_ not in self._operations:
                yield f"{module} applied {id_}, which is no message of this world"
                return
            if (outcome := oracle.apply(self._operations[id_])) not in TOOK_EFFECT:
                yield f"{module} applied {_describe(self._by_id[id_])}, which was {outcome} then"
        live = {uprn: tuple(entry) for uprn, entry in self.observation.live[module].items()}
        if oracle.live != live:
            yield f"{module} has {live}, its operations make {oracle.live}"

    def _compare_orders(self) -> Iterator[str]:
        for one, other in combinations(Module, 2):
            for uprn in {uprn for each in self.observation.reports for uprn in each.uprns}:
                orders = [
                    [
                        id_
                        for id_ in self.observation.applied[module]
                        if id_ in self._by_id
                        and uprn in self._by_id[id_].uprns
                        and {one, other} <= self._effects_by_message[id_]
                    ]
                    for module in (one, other)
                ]
                if orders[0] != orders[1]:
                    yield f"operations of {uprn} were applied in {one} as {orders[0]}, in {other} as {orders[1]}"

    def list_apart(self) -> list[int]:
        """List the UPRNs that modules have differently."""
        uprns = sorted({uprn for live in self.observation.live.values() for uprn in live})
        return [uprn for uprn in uprns if any(self._has(one, uprn) != self._has("ed", uprn) for one in Module)]

    def _has(self, module: str, uprn: int) -> object:
        return self.observation.live[module].get(uprn)

    def _explains(self, each: MessageReport, uprn: int) -> bool:
        """Whether a message that waits for a person names the UPRN and says that modules may differ there."""
        earlier = [
            self._effects_by_message[other.id] for other in self.observation.reports if other.superseded_by == each.id
        ]
        is_touched = each.is_touched or any(earlier)
        return uprn in each.uprns and is_touched and (not each.is_done or each.id in self.observation.skipped)

    def list_wrong_causes(self) -> Iterator[str]:
        """List what is given up, or queues, for a cause that is none."""
        for each in self._unfinished:
            if each.kind == "missing" and not any(
                uprn not in self.observation.live[module] for uprn in each.uprns for module in Module
            ):
                yield f"{_describe(each)} is given up for want of {each.missing}, and all modules have it"
            if each.kind == "overtaken" and not self._is_overtaken(each):
                yield f"{_describe(each)} is reported as overtaken, and no later swap of its addresses took effect"
            if each.kind == "behind" and each.state is MessageState.FAILED and not self._is_held(each):
                yield f"{_describe(each)} queues behind {each.behind}, which no module has begun"
            if each.kind is None:
                yield f"{_describe(each)} is {each.state} without a cause"

    def _is_overtaken(self, each: MessageReport) -> bool:
        return each.is_swap and any(
            other.is_swap
            and other.id > each.id
            and self._effects_by_message[other.id]
            and set(other.uprns) & set(each.uprns)
            for other in self.observation.reports
        )

    def _is_held(self, each: MessageReport) -> bool:
        """Whether it queues behind one that has begun, or behind one that does so in turn."""
        ahead = self._by_id.get(each.behind or 0)
        if ahead is None or not set(ahead.uprns) & set(each.uprns) or ahead.is_done:
            return False
        has_begun = ahead.is_touched or any(other.superseded_by == ahead.id for other in self.observation.reports)
        return has_begun or (ahead.kind == "behind" and ahead.state is not MessageState.GIVEN_UP)

    def list_needless_failures(self) -> Iterator[str]:
        """List what is given up although nothing of its own went wrong."""
        for each in self._unfinished:
            if each.state is not MessageState.GIVEN_UP:
                continue
            if each.kind == "behind":
                yield f"{_describe(each)} is given up while it queues behind {each.behind}"
            if never_sent := [module for module in each.unsure if each.id not in self.observation.sent[module]]:
                yield f"{_describe(each)} is given up, and holds others because of {never_sent}, which never got it"
            if each.kind in ("failed", "refused") and (each.id not in self.observation.hit or self.observation.retried):
                yield f"{_describe(each)} is given up as {each.kind}, and nothing hits its UPRNs"

    @property
    def _unfinished(self) -> Sequence[MessageReport]:
        return [each for each in self.observation.reports if not each.is_done]


def _describe(each: MessageReport) -> str:
    short = {Topic.SWAP: "swap", Topic.CREATE_UPDATE: "createUpdate", Topic.DELETE: "delete"}[each.topic]
    return f"{short} {each.id} of {'/'.join(map(str, each.uprns))}"
