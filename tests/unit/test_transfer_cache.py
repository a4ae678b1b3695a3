"""What a process keeps of jobs that are over."""

from __future__ import annotations

from api.transfers.context import BoundedCache


def test_what_was_kept_first_goes_first() -> None:
    """There is never more than the bound, and what is there is what was kept last."""
    kept: BoundedCache[int, str] = BoundedCache(max_items=3)
    for number in range(5):
        kept.put_and_drop_oldest_if_full(number, str(number))
    assert [kept.get(number) for number in range(5)] == [None, None, "2", "3", "4"]


def test_a_value_that_is_kept_again_replaces_the_first() -> None:
    """And takes no second place."""
    kept: BoundedCache[str, int] = BoundedCache(max_items=2)
    kept.put_and_drop_oldest_if_full("a", 1)
    kept.put_and_drop_oldest_if_full("a", 2)
    kept.put_and_drop_oldest_if_full("b", 3)
    assert (kept.get("a"), kept.get("b")) == (2, 3)
