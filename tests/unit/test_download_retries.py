"""A page is asked for again as long as that may help, and no longer."""

from __future__ import annotations

import pytest

from domain.downloads.plan import SourceExtent
from domain.downloads.retries import PageAttempts, PageRetryRules
from domain.faults import SourceFault
from infra.settings import DownloadSettings

RULES = PageRetryRules(retries=5, pause_seconds=0.5)
FIRST = PageAttempts(page=7, page_size=100)


def make_busy(seconds: float | None = None) -> SourceFault:
    return SourceFault("source_status", "429", transient=True, is_busy=True, retry_after_seconds=seconds)


def make_unreachable(code: str = "source_status", message: str = "503") -> SourceFault:
    return SourceFault(code, message, transient=True)


def make_wrong(message: str = "half of it") -> SourceFault:
    return SourceFault("source_page_size", message, doubtful=True)


def list_pauses(*faults: SourceFault) -> list[float | None]:
    """How long to wait after each of some faults of one page."""
    tries, found = FIRST, []
    for fault in faults:
        found.append(tries.compute_pause(fault, RULES))
        tries = tries.add_failure(fault)
    return found


def test_what_may_pass_is_asked_for_again_after_growing_pauses() -> None:
    """Five times, in a quarter of a minute."""
    assert list_pauses(*[make_unreachable()] * 6) == [0.5, 1.0, 2.0, 4.0, 8.0, None]


def test_the_same_wrong_answer_twice_is_believed() -> None:
    """A cache or a proxy may have been wrong once; who is wrong in another way each time is asked three times."""
    assert list_pauses(make_wrong(), make_wrong()) == [0.5, None]
    assert list_pauses(make_wrong("a"), make_wrong("b"), make_wrong("c")) == [0.5, 0.5, None]


def test_a_changed_total_is_asked_for_twice_or_three_times() -> None:
    """Twice if the page reports the same total again, three times if it reports another one each time."""

    def make_changed_total(total: int) -> SourceFault:
        with pytest.raises(SourceFault) as caught:
            SourceExtent(total=100, page_size=10).require_page_fits_total_and_size(1, 10, total)
        return caught.value

    assert list_pauses(make_changed_total(101), make_changed_total(101)) == [0.5, None]
    assert list_pauses(make_changed_total(101), make_changed_total(102), make_changed_total(103)) == [0.5, 0.5, None]


def test_what_asking_cannot_help_is_not_asked_for_again() -> None:
    """An address that is closed to us stays closed."""
    assert list_pauses(SourceFault("address_denied", "no")) == [None]


def test_to_be_told_to_wait_costs_no_try() -> None:
    """However often; the waits grow, and no source makes us wait longer than five minutes at a time."""
    assert list_pauses(*[make_busy()] * 9) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert list_pauses(make_busy(3.0), make_busy(86_400.0), make_busy(-5.0)) == [
        3.0,
        RULES.retry_after_max_seconds,
        2.0,
    ]
    assert list_pauses(*[make_busy()] * 9, make_unreachable())[-1] == 0.5


def test_an_answer_that_ends_at_the_same_byte_twice_ends_there() -> None:
    """One that ends elsewhere each time is a bad connection."""
    cut = [make_unreachable("source_cut_off", f"after {size} bytes") for size in (10, 20, 20)]
    assert list_pauses(*cut) == [0.5, 1.0, None]


def test_a_time_out_is_waited_for_twice() -> None:
    """It has taken long enough."""
    assert list_pauses(*[make_unreachable("source_timeout", "30 s")] * 2) == [0.5, None]


def test_time_outs_are_counted_by_themselves() -> None:
    """A source that failed in another way before is not given up at its first time-out."""
    assert list_pauses(
        make_unreachable(), make_unreachable("source_timeout", "30 s"), make_unreachable("source_timeout", "30 s")
    ) == [0.5, 1.0, None]


def test_what_is_wrong_for_good_is_told_within_20_seconds() -> None:
    """The pauses after the second equal answer, as installed by default, leave time for the answers themselves."""
    settings = DownloadSettings()
    rules = PageRetryRules(retries=settings.page_retries, pause_seconds=settings.retry_pause_seconds)
    for fault in (
        make_wrong(),
        make_unreachable(),
        make_unreachable("source_cut_off"),
        make_unreachable("source_no_data"),
        make_unreachable("source_timeout"),
    ):
        tries, waited = FIRST, 0.0
        while (pause := tries.compute_pause(fault, rules)) is not None:
            tries, waited = tries.add_failure(fault), waited + pause
        assert waited <= 16, fault.record.code


@pytest.mark.parametrize(
    ("before", "words"), [(0, "Page 7: half"), (1, "Page 7 failed twice; at last: half"), (3, "Page 7 failed 4 times")]
)
def test_the_user_reads_which_page_it_was_and_how_often(before: int, words: str) -> None:
    """The last fault is reported, with its hint and its code."""
    tries = FIRST
    for _ in range(before):
        tries = tries.add_failure(make_wrong())
    told = tries.build_fault_with_attempt_count(make_wrong())
    assert told.record.message.startswith(words)
    assert told.record.code == "source_page_size"
