"""Judging: what was seen of a world, held against what may become of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sims.gse.tasks import FileSpot
from tests.worlds import verdict
from tests.worlds.transfers.expecting import ANY, TargetExpectation, expect_target
from tests.worlds.transfers.naming import TransferNames
from tests.worlds.transfers.seen import JobLine, OnDisk, SeenJob, SeenTarget, SentTask, TransferObservations
from tests.worlds.transfers.world import DISTINCT_WISHES_MAX
from tests.worlds.verdict import WORST_FIRST, Ending, Expectation, Outcome, Verdict

RETRIES = 2
"""How often a target is sent again."""
WINDOWS_AHEAD = 4
"""How many windows may be full before a request is refused."""
MAY_ARRIVE = "may still arrive"


def judge_world(names: TransferNames, seen: TransferObservations) -> Verdict:
    """Say how a world ended: as its worst part did.

    Args:
        names: The world as it was played.
        seen: What was seen of it.
    """
    if seen.late:
        return Verdict(Ending.LATE, seen.late, seen.fired)
    parts = [Verdict(Ending.SILENT, difference, seen.fired) for difference in _list_differences(names, seen)]
    parts += [Verdict(Ending.NEEDLESS, reason, seen.fired) for reason in _list_needless_refusals(names, seen)]
    bringers = Counter(names.spot(target.goal) for target in seen.targets)
    for target in seen.targets:
        parts.append(_judge_target(names, target, seen.fired, is_alone=bringers[names.spot(target.goal)] == 1))
    return min(parts, key=lambda part: WORST_FIRST.index(part.ending))


def _judge_target(names: TransferNames, target: SeenTarget, fired: frozenset[str], *, is_alone: bool) -> Verdict:
    """Judge one target.

    Args:
        names: The world as it was played.
        target: The target.
        fired: What went wrong in the world.
        is_alone: Whether no other job brings the same to the same place.
    """
    expected = expect_target(names, target.goal, is_cancelled=target.cancelled)
    flaws = names.world.flaw_names
    if target.status == "Success":
        difference = "" if target.disk is OnDisk.RIGHT else f"Success is told, and on {_where(target)} is {target.disk}"
        outcome = Outcome(is_over=True, difference=difference)
        return verdict.judge(Expectation(is_visible=expected.is_visible), outcome, flaws, fired)
    is_told_unsure = target.reason == "cancelled" and MAY_ARRIVE in target.message
    if is_alone and target.disk is not OnDisk.NOTHING and not (expected.may_have_it or is_told_unsure):
        return Verdict(Ending.SILENT, f"{target.cause} is told, and on {_where(target)} is {target.disk}", fired)
    for cause, words in expected.words:
        if cause == target.cause and words not in target.message:
            why = f"{target.cause} on {_where(target)} without {words!r}: {target.message}"
            return Verdict(Ending.WRONG_CAUSE, why, fired)
    outcome = Outcome(is_over=True, cause=_cause(expected, target), message=f"{_where(target)}: {target.message}")
    # A cancellation is a reason of its own, whether or not anything went wrong beside it.
    reasons = fired | {"cancelled"} if target.cancelled else fired
    found = verdict.judge(Expectation(expected.causes), outcome, flaws, frozenset(reasons))
    return Verdict(found.ending, found.why, fired)


def _cause(expected: TargetExpectation, target: SeenTarget) -> str:
    any_code = f"{target.status}/{target.reason}/{ANY}"
    return any_code if any_code in expected.causes else target.cause


def _where(target: SeenTarget) -> str:
    return f"{target.goal.agent_id}:{target.goal.container_id}"


def _list_differences(names: TransferNames, seen: TransferObservations) -> Iterator[str]:
    """List what was not reported, beside what is wrong with single targets."""
    if not seen.targets:
        yield f"no target was seen: {seen.unanswered.total()} answered with 503, refused {dict(seen.refusals)}"
    for target in seen.targets:
        if target.tasks_differ:
            yield target.tasks_differ
        if target.cancelled_early and (target.status, target.reason) != ("Failed", "cancelled"):
            yield f"{_where(target)} was cancelled before its window ended, and is {target.cause}"
    for spot, sends in seen.sends.items():
        yield from _list_doubled(names, seen, spot, sends)
    for job in seen.jobs:
        yield from _compare_job(names, job, [each for each in seen.targets if _is_in(each, job)])
    for job_id in {target.job_id for target in seen.targets}:
        yield from _compare_workflow(job_id, seen)


def _list_doubled(
    names: TransferNames, seen: TransferObservations, spot: FileSpot, sends: Sequence[SentTask]
) -> Iterator[str]:
    """Report a target that was in a second GSE task although the first had not failed it."""
    jobs = [each.job_id for each in seen.targets if names.spot(each.goal) == spot and not each.cancelled_early]
    wanted = len(jobs) + seen.unanswered[spot]
    for number, send in enumerate(sends):
        under_way = sum(not _had_failed(earlier, send.began_at) for earlier in sends[:number])
        if under_way >= wanted:
            told = ", ".join(map(str, sends))
            yield f"{spot.agent} was sent to {number + 1} times, {wanted} wanted it, {under_way} had not failed: {told}"
            return
    answered = [each for each in sends if each.failed_at != each.began_at]
    if len(answered) > wanted * (1 + RETRIES):
        yield f"{spot.agent} was sent to {len(answered)} times, {wanted} wanted it"


def _had_failed(send: SentTask, moment: float) -> bool:
    return send.failed_at is not None and send.failed_at <= moment


def _is_in(target: SeenTarget, job: SeenJob) -> bool:
    return (target.job_id, target.goal.project) == (job.job_id, job.project)


def _compare_job(names: TransferNames, job: SeenJob, targets: Sequence[SeenTarget]) -> Iterator[str]:
    """List the differences between a job's response and the tasks of its targets."""
    counted = Counter(target.status for target in targets)
    if _without_zeros(job.counts) != counted:
        yield f"{job.job_id} counts {dict(job.counts)}, its tasks are {dict(counted)}"
    if job.status != (worst := _find_worst(counted)):
        yield f"{job.job_id} is {job.status}, its tasks make it {worst}"
    failed = counted.total() - counted["Success"]
    if job.troubles != failed:
        yield f"{job.job_id} has {job.troubles} troubles, {failed} of its tasks failed"
    difference = verdict.differences(sorted(_line(names, each) for each in targets), sorted(map(str, job.targets)))
    if difference:
        yield f"the pages of {job.job_id}: {difference}"


def _line(names: TransferNames, target: SeenTarget) -> str:
    """Return the line that a job must have of a target."""
    goal = target.goal
    signature = names.signature(goal.content)
    return str(JobLine(signature, goal.user, goal.folder, goal.agent_id, goal.container_id, target.cause))


def _compare_workflow(job_id: str, seen: TransferObservations) -> Iterator[str]:
    """List what a job's workflow ends with differently from the tasks of its targets."""
    targets = [each for each in seen.targets if each.job_id == job_id]
    counted, told = Counter(each.status for each in targets), seen.outcomes.get(job_id, {})
    if _without_zeros(told) != counted:
        yield f"the workflow of {job_id} tells {dict(told)}, its tasks are {dict(counted)}"
    goals = [each.goal for each in targets]
    distinct = {(each.project, each.content, each.user, each.folder) for each in goals}
    if len(distinct) > DISTINCT_WISHES_MAX:
        yield f"{job_id} took {len(distinct)} different specs"


def _find_worst(counted: Counter[str]) -> str:
    return next((status for status in ("Failed", "Timeout") if counted[status]), "Success")


def _without_zeros(counts: Mapping[str, int]) -> Counter[str]:
    return Counter({status: count for status, count in counts.items() if count})


def _list_needless_refusals(names: TransferNames, seen: TransferObservations) -> Iterator[str]:
    """List requests that were refused although the job's limits allowed them."""
    wishes = len(names.world.wishes)
    for code, count in seen.refusals.items():
        if code != "window_full" or count > max(0, wishes - WINDOWS_AHEAD * DISTINCT_WISHES_MAX):
            yield f"{count} of {wishes} requests were refused with {code}"
    if seen.never_joined:
        yield f"{seen.never_joined} requests were never let in"
