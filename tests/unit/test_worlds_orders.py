"""The judge of worlds of orders sees loss, staleness, doubling, false success and causes that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest

from tests.worlds.flaws import Flaw
from tests.worlds.orders.expecting import expect
from tests.worlds.orders.flaws import KINDS
from tests.worlds.orders.judging import Seen, SeenReading, SeenSlice, StoredOrder, judge_world
from tests.worlds.orders.options import OPTIONS, pairwise_rows, plain_row
from tests.worlds.orders.platform import WorldPlatform
from tests.worlds.orders.record import draw_record
from tests.worlds.orders.rows import OrderTruth
from tests.worlds.orders.world import World, draw_world, list_smaller
from tests.worlds.pairwise import pairs_of
from tests.worlds.verdict import Ending

START = datetime(2026, 1, 1, tzinfo=UTC)
SLICE = timedelta(seconds=1_150)
COUNT = 3
LASTING, PASSING = "cut_json", "leaves"


def make_world(*flaws: str, **options: str) -> World:
    """A world with plain options."""
    return World(
        seed=1,
        orders=COUNT,
        page_size=3,
        flaws=tuple(Flaw(name=name, passes=KINDS[name].passes == (True,), dial=0) for name in flaws),
        options={**plain_row(), **options},
    )


def make_truth() -> list[OrderTruth]:
    """An order in each of three slices."""
    return [
        OrderTruth(f"A-{number}", START + number * SLICE + timedelta(seconds=7), 2, f'{{"revision":2,"n":{number}}}')
        for number in range(COUNT)
    ]


def make_seen(*flaws: str) -> Seen:
    """All as it should be: three slices that are done, and their orders."""
    stored = [StoredOrder(each.order_id, each.found_at, 2, each.text) for each in make_truth()]
    slices = [
        SeenSlice(str(number), START + number * SLICE, START + (number + 1) * SLICE, "done") for number in range(COUNT)
    ]
    end = START + COUNT * SLICE
    marks = {"starts_at": START, "claimed_to": end, "complete_to": end}
    return Seen(stored=stored, slices=slices, marks=[marks], settled_to=end, fired=frozenset(flaws))


def fail_slice(seen: Seen, number: int, code: str) -> None:
    """Have a slice failed, so that its order is not there and the mark is before it."""
    slices = list(seen.slices)
    slices[number] = replace(slices[number], state="failed", code=code, message="because")
    seen.slices = slices
    seen.stored = [each for each in seen.stored if each.order_id != f"A-{number}"]
    seen.marks = [{**seen.marks[0], "complete_to": slices[number].start}]


def _lose(seen: Seen) -> None:
    seen.stored = seen.stored[1:]


def _hide_a_hole(seen: Seen) -> None:
    fail_slice(seen, 1, "platform_failed")
    seen.marks = [{**seen.marks[0], "complete_to": START + COUNT * SLICE}]


def _keep_stale(seen: Seen) -> None:
    seen.stored = [replace(seen.stored[0], raw='{"revision":1,"n":0}'), *seen.stored[1:]]


def _double(seen: Seen) -> None:
    seen.stored = [*seen.stored, seen.stored[0]]


def _invent(seen: Seen) -> None:
    seen.stored = [*seen.stored, replace(seen.stored[0], order_id="A-9")]


def _replace_by_older(seen: Seen) -> None:
    seen.replaced = [replace(seen.stored[0], version=3)]


def _fall_back(seen: Seen) -> None:
    seen.marks = [{**seen.marks[0], "complete_to": START + 9 * SLICE}, *seen.marks]


def _overlap(seen: Seen) -> None:
    seen.slices = [*seen.slices, replace(seen.slices[0], name="again", start=START + timedelta(seconds=1))]


def _leave_a_gap(seen: Seen) -> None:
    seen.slices = [seen.slices[0], seen.slices[2]]


def _give_way_to_nobody(seen: Seen) -> None:
    fail_slice(seen, 0, "platform_failed")
    seen.readings = [SeenReading("0", is_done=False)]


def _fail_without_a_cause(seen: Seen) -> None:
    fail_slice(seen, 0, "")


def _accept_without_effect(seen: Seen) -> None:
    seen.complaints = ["an option was accepted, and changed nothing"]


@pytest.mark.parametrize("flaws", [(), (LASTING,), (PASSING,)])
@pytest.mark.parametrize(
    "plant",
    [
        *(_lose, _hide_a_hole, _keep_stale, _double, _invent, _replace_by_older, _fall_back, _overlap, _leave_a_gap),
        *(_give_way_to_nobody, _fail_without_a_cause, _accept_without_effect),
    ],
)
def test_what_differs_in_silence_is_seen(plant: Callable[[Seen], None], flaws: tuple[str, ...]) -> None:
    """Whatever goes wrong at the platform: a flaw excuses a hole, and never what is said to be complete."""
    seen = make_seen(*flaws)
    assert judge_world(make_world(*flaws), seen, make_truth()).ending is Ending.EQUAL
    plant(seen)
    assert judge_world(make_world(*flaws), seen, make_truth()).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("flaws", "code", "ending"),
    [
        ((LASTING,), "platform_failed", Ending.FAILED),
        ((LASTING,), "platform_refused", Ending.WRONG_CAUSE),
        ((PASSING,), "platform_failed", Ending.NEEDLESS),
        ((), "platform_failed", Ending.NEEDLESS),
    ],
)
def test_a_hole_needs_a_right_cause(flaws: tuple[str, ...], code: str, ending: Ending) -> None:
    """And what only passes is no reason for one."""
    seen = make_seen(*flaws)
    fail_slice(seen, 1, code)
    assert judge_world(make_world(*flaws), seen, make_truth()).ending is ending


@pytest.mark.parametrize("flaw", [LASTING, "quota", "clock_down", "token_expires"])
def test_who_is_mended_has_no_excuse(flaw: str) -> None:
    """Once what lasts is over, and what failed was read again."""
    seen = make_seen(flaw)
    fail_slice(seen, 1, "platform_failed")
    seen.is_mended = True
    world = make_world(flaw, afterwards="mended")
    lasting = world.model_copy(update={"flaws": (world.flaws[0].model_copy(update={"passes": False}),)})
    assert judge_world(lasting, seen, make_truth()).ending is Ending.NEEDLESS


def _stand_still(seen: Seen) -> None:
    assert seen.settled_to
    seen.settled_to += 3 * SLICE


def _never_begin(seen: Seen) -> None:
    seen.slices, seen.stored = [], []
    seen.marks = [{"starts_at": None, "claimed_to": None, "complete_to": None}]


def _leave_open(seen: Seen) -> None:
    fail_slice(seen, 1, "platform_failed")
    seen.slices = [replace(each, state="open" if each.state == "failed" else each.state) for each in seen.slices]


@pytest.mark.parametrize("plant", [_stand_still, _never_begin, _leave_open])
def test_who_stands_still_without_a_word_is_seen(plant: Callable[[Seen], None]) -> None:
    """Nothing is wrong in what is there; too little is there, without a cause."""
    seen = make_seen()
    plant(seen)
    assert judge_world(make_world(), seen, make_truth()).ending is Ending.NEEDLESS


def test_what_never_ends_and_what_shows_nothing() -> None:
    """Neither is a success."""
    seen = make_seen()
    seen.late = "not in time"
    assert judge_world(make_world(), seen, make_truth()).ending is Ending.LATE
    assert judge_world(make_world(LASTING), make_seen(), make_truth()).ending is Ending.UNKNOWN


def test_what_is_given_up_is_not_missed() -> None:
    """A slice that was skipped with a reason: what lies beside it must be there."""
    seen = make_seen()
    fail_slice(seen, 1, "platform_failed")
    seen.slices = [replace(each, state="skipped" if each.state == "failed" else each.state) for each in seen.slices]
    seen.marks = [{**seen.marks[0], "complete_to": START + COUNT * SLICE}]
    assert judge_world(make_world(), seen, make_truth()).ending is Ending.EQUAL
    seen.stored = seen.stored[1:]
    assert judge_world(make_world(), seen, make_truth()).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("flaws", "options"),
    [
        (("too_late",), {"sweep": "no"}),
        (("rows_stop",), {"total": "none", "sort": "by_id"}),
        (("cursor_is_offset", "leaves"), {"paging": "cursor"}),
    ],
)
def test_what_no_client_can_see_is_counted_apart(flaws: tuple[str, ...], options: dict[str, str]) -> None:
    """It is a difference all the same, and not an equal world."""
    seen = make_seen(*flaws)
    _lose(seen)
    assert judge_world(make_world(*flaws, **options), seen, make_truth()).ending is Ending.INVISIBLE


def test_rows_of_options_hold_every_pair() -> None:
    """In far fewer rows than there are combinations."""
    rows = pairwise_rows()
    found = set().union(*map(pairs_of, rows))
    for (one, values), (other, others) in combinations(OPTIONS.items(), 2):
        assert {frozenset({(one, value), (other, beside)}) for value in values for beside in others} <= found
    assert len(rows) <= 60


def test_worlds_are_the_same_for_a_seed_and_draw_everything() -> None:
    """Every flaw comes; what is expected, and the record, can be computed before the world is played."""
    worlds = [draw_world(seed) for seed in range(1_000)]
    assert worlds[:50] == [draw_world(seed) for seed in range(50)]
    assert {flaw.name for world in worlds for flaw in world.flaws} == set(KINDS)
    for world in worlds:
        draw_record(world)
        can_fail = {flaw.name for flaw in world.flaws if not flaw.passes} or world.is_so("retries", "0")
        assert not expect(world).causes or can_fail


def test_smaller_worlds_are_smaller() -> None:
    """So that shrinking comes to an end."""
    for seed in range(50):
        world = draw_world(seed)
        assert all(smaller != world and smaller.orders >= 0 for smaller in list_smaller(world))


def test_a_platform_answers_the_same_for_a_seed() -> None:
    """Its answer follows from the world, the question, and how often that was asked."""
    world = make_world("short_pages", "total_too_large", orders="9").model_copy(update={"orders": 9})
    query = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:40:00Z", "page": "1", "size": "3"}
    told = [WorldPlatform(world, "").ask("/orders", query, {"Authorization": "Bearer token-1"}).body for _ in range(2)]
    assert told[0] == told[1]
    assert b'"orders":[{' in told[0]


@pytest.mark.parametrize(
    ("flaws", "code", "ending"),
    [
        (("too_late", "detail_other"), "platform_failed", Ending.FAILED),
        (("too_late", "detail_other"), "", Ending.SILENT),
        (("detail_other",), "platform_failed", Ending.SILENT),
        (("too_late",), "platform_failed", Ending.NEEDLESS),
    ],
)
def test_orders_that_come_later_may_wait_for_a_sweep_whose_fault_is_told(
    flaws: tuple[str, ...], code: str, ending: Ending
) -> None:
    """What was there when the slice was read must be stored, and a sweep fails for a cause, too."""
    seen = make_seen(*flaws)
    seen.stored = seen.stored[1:]
    seen.slices = [replace(seen.slices[0], code=code, message="It is not as asked for."), *seen.slices[1:]]
    world = make_world(*flaws, detail="call", sweep="yes")
    assert judge_world(world, seen, make_truth()).ending is ending


@pytest.mark.parametrize(
    ("is_swept", "troubles", "is_silent"), [(False, True, False), (False, False, True), (True, True, True)]
)
def test_orders_that_come_later_wait_while_their_platform_is_in_trouble(
    is_swept: bool, troubles: bool, is_silent: bool
) -> None:
    """A sweep is due and waits with all the rest: the platform's fault says why."""
    seen = make_seen("too_late", "token_expires")
    seen.stored = seen.stored[1:]
    seen.slices = [replace(seen.slices[0], is_swept=is_swept), *seen.slices[1:]]
    seen.troubles = {"platform_credentials": "The token has expired."} if troubles else {}
    world = make_world("too_late", "token_expires", signing="token", sweep="yes")
    assert (judge_world(world, seen, make_truth()).ending is Ending.SILENT) is is_silent
