"""From rounds to figures: losses at every seed, medians, ratios, and what the issue asks to reach."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.orders.rounds import Round
from bench.report import Figure

Results = Mapping[int, Mapping[str, Sequence[Round]]]

OURS = "ours"
RATIOS_TO_REACH = {("dlt", 10_000): 0.6, ("airbyte cdk", 10_000): 0.6, ("dlt", 1_000_000): 3.0}
GROWTH_MAX = 1.2


def figures(results: Results) -> list[Figure]:
    """What the issue names first, then everything."""
    found = [*_losses(results), *_ratios(results), *_growth(results)]
    for orders, by_name in results.items():
        for name, rounds in by_name.items():
            found += _told(orders, name, rounds)
    return found


def show(results: Results) -> None:
    """The comparison in one table."""
    names = list(next(iter(results.values())))
    table = Table("orders", *names, title="rows/s · requests for 1,000 rows · lost / duplicated at each seed")
    for orders, by_name in results.items():
        table.add_row(f"{orders:,}", *(_cell(rounds) for rounds in by_name.values()))
    Console().print(table)


def as_json(results: Results) -> bytes:
    """What the chart shows: by contender and size."""
    series = {
        name: {
            "orders": list(results),
            "rate": [median(each.rate for each in by_name[name]) for by_name in results.values()],
            "lost": [_per_million(by_name[name]) for by_name in results.values()],
            "cpu_us": [median(each.cpu_us for each in by_name[name]) for by_name in results.values()],
        }
        for name in next(iter(results.values()))
    }
    return json.dumps(series).encode()


def _losses(results: Results) -> Iterator[Figure]:
    for kind in ("lost", "duplicated", "invented"):
        everything = [getattr(each, kind) for by_name in results.values() for each in by_name[OURS]]
        how = f"the worst of {len(everything)} rounds, each another seed or size; orders changed all the while"
        yield Figure(f"ours: rows {kind}", max(everything), "", how, "0", not any(everything))


def _ratios(results: Results) -> Iterator[Figure]:
    for orders, by_name in results.items():
        for name, rounds in by_name.items():
            if name == OURS:
                continue
            ratio = median(each.rate for each in by_name[OURS]) / median(each.rate for each in rounds)
            reach = RATIOS_TO_REACH.get((name, orders))
            yield Figure(
                f"ours ÷ {name}, {orders:,} orders", ratio, "×", "rows/s by rows/s, medians of rounds in turn",
                f"≥ {reach:g}" if reach else "", ratio >= reach if reach else None,
            )  # fmt: skip


def _growth(results: Results) -> Iterator[Figure]:
    """Linear from the smallest size on: an order of a million costs no more than one of ten thousand."""
    smallest, largest = min(results), max(results)
    sizes = sorted(results)[:-1]
    for orders in sizes:
        costs = [median(each.cpu_us for each in results[size][OURS]) for size in (orders, largest)]
        growth = costs[1] / costs[0]
        yield Figure(
            f"our CPU for a row, {largest:,} ÷ {orders:,} orders", growth, "×",
            "API, workers, engine, database, store; 1 is linear growth, less is better",
            f"≤ {GROWTH_MAX}" if orders == smallest or orders == sizes[-1] else "", growth <= GROWTH_MAX,
        )  # fmt: skip


def _told(orders: int, name: str, rounds: Sequence[Round]) -> Iterator[Figure]:
    rates = sorted(each.rate for each in rounds)
    what = f"{name}, {orders:,} orders"
    spread = f"median of {len(rounds)} rounds in turn, {rates[0]:,.0f} to {rates[-1]:,.0f}"
    yield Figure(f"{what}: rows/s", median(rates), "rows/s", spread)
    requests = median(each.requests_per_thousand for each in rounds)
    yield Figure(f"{what}: requests for 1,000 rows", requests, "", "counted by the platform, first fetch")
    seeds = ", ".join(f"seed {each.seed}: {each.lost} of {each.changes:,} changes" for each in rounds)
    yield Figure(f"{what}: rows lost", max(each.lost for each in rounds), "", f"the worst; {seeds}")
    twice = "kept twice, unchanged" + ("; the CDK merges nothing, a destination would" if "cdk" in name else "")
    yield Figure(f"{what}: rows duplicated", max(each.duplicated for each in rounds), "", twice)
    cpu = median(each.cpu_us for each in rounds)
    yield Figure(f"{what}: CPU for a row", cpu, "µs", "its own processes, and the database and engine that serve it")


def _cell(rounds: Sequence[Round]) -> str:
    rate, requests = median(each.rate for each in rounds), median(each.requests_per_thousand for each in rounds)
    losses = ", ".join(f"{each.lost}/{each.duplicated}" for each in rounds)
    return f"{rate:,.0f} · {requests:.1f} · {losses}"


def _per_million(rounds: Sequence[Round]) -> float:
    return median(each.lost / each.rows * 1e6 for each in rounds)
