"""The four modules of all worlds: operations fail by their UPRNs, and weather hits everybody."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sims.oss.scenario import MODULES, OssAction, OssRule
from sims.oss.server import Oss
from tests.worlds.addresses.flaws import OPERATION_FAULTS, Group
from tests.worlds.addresses.publications import Names
from tests.worlds.flaws import Flaw

TOO_LATE_SECONDS = 1.9
MODULE_FAULTS: Mapping[str, OssRule] = {
    "module_fails": OssRule(action=OssAction.ERROR),
    "module_says_503": OssRule(action=OssAction.ERROR, status=503),
    "module_resets": OssRule(action=OssAction.RESET),
    "answers_are_lost": OssRule(action=OssAction.LOST),
    "answers_are_late": OssRule(action=OssAction.LATE, seconds=TOO_LATE_SECONDS),
    "calls_arrive_late": OssRule(action=OssAction.SLOW, seconds=TOO_LATE_SECONDS),
}
UNTIL_MENDED = frozenset({"fails_until_mended", "chokes_until_mended"})


@dataclass
class OperationFault:
    """What goes wrong with the operations of some UPRNs in one module."""

    flaw: Flaw
    module: str
    uprns: frozenset[int]
    tries: int
    """Failed cycles after which a message is given up."""
    hits: Counter[str] = field(default_factory=Counter)
    """How often each operation was hit, by its id."""

    @property
    def is_choke(self) -> bool:
        """Whether the module fails on every call that holds the operation."""
        return self.flaw.name == "chokes_until_mended"

    @property
    def is_midway(self) -> bool:
        """Whether it breaks swaps between their two sides, and nothing else."""
        return self.flaw.name == "swap_breaks_midway"

    def hit(self, operation: Mapping[str, Any]) -> bool:
        """Whether it hits an operation this time."""
        if (self.is_midway and operation["kind"] != "swap") or self.hits[operation["op_id"]] >= self._times:
            return False
        self.hits[operation["op_id"]] += 1
        return True

    @property
    def _times(self) -> float:
        if self.flaw.name in UNTIL_MENDED:
            return math.inf
        # A swap is tried twice in a cycle.
        return 2 * self.tries if self.flaw.name == "fails_for_a_while" else 1


@dataclass
class ModuleFault:
    """What goes wrong with all calls to a module for a while."""

    rule: OssRule
    seconds: float
    """From the first call that it hits."""
    until: float | None = None
    hits: int = 0

    def hit(self) -> bool:
        """Whether it hits a call that comes now."""
        now = time.monotonic()
        self.until = self.until or now + self.seconds
        is_hit = now < self.until
        self.hits += is_hit
        return is_hit


@dataclass
class OssOfWorlds(Oss):
    """Finds what goes wrong with an operation by its UPRN, however many worlds are played."""

    operation_faults: dict[tuple[str, int], OperationFault] = field(default_factory=dict)
    module_fault: dict[str, ModuleFault] = field(default_factory=dict)

    def start_operation_fault(self, names: Names) -> OperationFault | None:
        """Let the operations of a world go wrong, if its flaws say so."""
        flaw = names.world.group(Group.OPERATIONS)
        if flaw is None or flaw.name not in OPERATION_FAULTS:
            return None
        first, count = flaw.dial // len(MODULES) % names.world.uprns, 1 + flaw.dial % 2
        uprns = [names.uprn((first + number) % names.world.uprns) for number in range(count)]
        operation_fault = OperationFault(flaw, MODULES[flaw.dial % len(MODULES)], frozenset(uprns), names.world.tries)
        self.operation_faults.update({(operation_fault.module, uprn): operation_fault for uprn in uprns})
        return operation_fault

    def end_operation_fault(self, operation_fault: OperationFault | None) -> None:
        """Let them go right."""
        if operation_fault is not None:
            for uprn in operation_fault.uprns:
                self.operation_faults.pop((operation_fault.module, uprn), None)

    def start_module_fault(self, flaw: Flaw) -> ModuleFault:
        """Let all calls to a module go wrong for some seconds."""
        module, seconds = MODULES[flaw.dial % len(MODULES)], 2.0 + 3.0 * flaw.share
        module_fault = ModuleFault(MODULE_FAULTS[flaw.name], seconds)
        self.module_fault[module] = module_fault
        return module_fault

    def end_module_fault(self, module_fault: ModuleFault | None) -> None:
        """Let weather that no call has met be over, too."""
        self.module_fault = {module: each for module, each in self.module_fault.items() if each is not module_fault}

    def fault(self, module: str) -> OssRule | None:
        """See base class."""
        module_fault = self.module_fault.get(module)
        return module_fault.rule if module_fault and module_fault.hit() else None

    def chokes(self, module: str, operations: Sequence[dict[str, Any]]) -> bool:
        """See base class."""
        return any(
            operation_fault.is_choke and operation_fault.hit(each)
            for each in operations
            for operation_fault in self._find_operation_faults(module, each)
        )

    def broken(self, module: str, operations: Sequence[dict[str, Any]]) -> list[int]:
        """See base class."""
        return [
            each["uprn_2"] if operation_fault.is_midway else each["uprn"]
            for each in operations
            for operation_fault in self._find_operation_faults(module, each)
            if not operation_fault.is_choke and operation_fault.hit(each)
        ]

    def _find_operation_faults(self, module: str, operation: Mapping[str, Any]) -> list[OperationFault]:
        uprns: list[int] = [operation[name] for name in ("uprn", "uprn_2") if operation.get(name)]
        found = [self.operation_faults[module, uprn] for uprn in uprns if (module, uprn) in self.operation_faults]
        return found[:1]
