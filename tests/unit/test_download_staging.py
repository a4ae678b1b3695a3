"""Ledgers of any sizes become a valid sequence of parts, or say that they cannot."""

from hashlib import sha256
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.downloads.assembly import join_ranges_or_plan_books
from activities.downloads.stager import read_tail
from domain.downloads import staging
from domain.downloads.activity_models import AssembleInput, SourcesProbe
from domain.downloads.models import DownloadSpec
from domain.downloads.staging import (
    MIB,
    BoundaryBetweenPagesOfTail,
    JoinedTailsPiece,
    RangeLedger,
    StagedPartsInvalid,
    StagedTailRecord,
    UploadedPartRecord,
    UploadedPiece,
)
from infra.objects import ObjectMissing

RANGES = 5


def build_ledger(index: int, parts: list[int], tail: int | None, ranges: int = RANGES) -> RangeLedger:
    return RangeLedger(
        upload_id="u",
        range=index,
        next_page=0,
        parts=[
            UploadedPartRecord(
                number=staging.compute_part_number_in_range_block(index, place, ranges),
                bytes=size,
                etag="e",
                sha256="s",
                rows=1,
            )
            for place, size in enumerate(parts)
        ],
        tail=None if tail is None else StagedTailRecord(key=f"t{index}", bytes=tail, sha256="s", rows=1),
    )


def test_small_ranges_are_gathered_into_one_part() -> None:
    """Five ranges of 1 MiB are one part of 5 MiB."""
    pieces = staging.list_file_pieces([build_ledger(index, [], MIB) for index in range(5)])

    assert [(piece.number, piece.bytes) for piece in pieces if isinstance(piece, JoinedTailsPiece)] == [(1, 5 * MIB)]


def test_large_ranges_stay_as_they_were_uploaded() -> None:
    """Parts are taken over as they are, in order of ranges."""
    pieces = staging.list_file_pieces(
        [build_ledger(0, [8 * MIB, 6 * MIB], None), build_ledger(1, [8 * MIB, 5 * MIB], None)]
    )

    numbers = [piece.part.number for piece in pieces if isinstance(piece, UploadedPiece)]
    assert numbers == [1, 2, staging.MAX_PARTS // RANGES + 1, staging.MAX_PARTS // RANGES + 2]


def test_a_tail_is_recorded_under_its_stored_names() -> None:
    """Ledgers in the object store have them, and a newer release reads them."""
    stored = '{"key":"t","bytes":9,"sha256":"s","rows":4,"marks":[{"bytes":5,"next_page":2,"rows":3}]}'
    tail = StagedTailRecord.model_validate_json(stored)
    assert tail.page_ends == [BoundaryBetweenPagesOfTail(bytes_after_previous=5, next_page=2, rows_of_range=3)]
    assert tail.model_dump_json() == stored


def test_a_small_range_before_a_large_one_cannot_be_joined() -> None:
    """No store takes a part under 5 MiB that is not the last."""
    with pytest.raises(StagedPartsInvalid):
        staging.list_file_pieces([build_ledger(0, [], MIB), build_ledger(1, [8 * MIB, 5 * MIB], None)])


def test_a_block_of_part_numbers_is_never_overrun() -> None:
    """A range that is too large is an error, not another range's part; one range has all numbers to itself."""
    with pytest.raises(StagedPartsInvalid):
        staging.compute_part_number_in_range_block(0, staging.MAX_PARTS // RANGES, RANGES)
    assert staging.compute_part_number_in_range_block(0, staging.MAX_PARTS - 1, 1) == staging.MAX_PARTS
    assert (
        staging.compute_part_number_in_range_block(RANGES - 1, staging.MAX_PARTS // RANGES - 1, RANGES)
        <= staging.MAX_PARTS
    )


sizes = st.integers(1, 13 * MIB)


@given(st.lists(st.tuples(st.lists(st.integers(5 * MIB, 13 * MIB), max_size=3), sizes), min_size=1, max_size=5))
def test_joined_pieces_are_valid_and_lose_nothing(ranges: list[tuple[list[int], int]]) -> None:
    """Numbers ascend, all bytes are there, and only the last piece may be small."""
    ledgers = [
        build_ledger(index, parts, None if parts else tail, len(ranges)) for index, (parts, tail) in enumerate(ranges)
    ]
    try:
        pieces = staging.list_file_pieces(ledgers)
    except StagedPartsInvalid:
        assert any(not parts and tail < 5 * MIB for parts, tail in ranges)
        return

    numbers = [piece.part.number if isinstance(piece, UploadedPiece) else piece.number for piece in pieces]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= staging.MAX_PARTS
    assert sum(piece.bytes for piece in pieces) == sum(sum(parts) or tail for parts, tail in ranges)
    assert all(piece.bytes >= staging.PART_MIN_BYTES for piece in pieces[:-1])


async def test_a_ledger_that_was_written_back_makes_no_file() -> None:
    """By a worker that was taken for dead: where a source reports no total, rows would be missing without a word."""
    objects, ledger = AsyncMock(), build_ledger(0, [], 9, ranges=1).model_copy(update={"rows": 4})
    objects.get.side_effect = [ObjectMissing("", key="", code=""), ledger.model_dump_json().encode()]
    spec = DownloadSpec(task_id="t", project_id="p", file_name="f.csv")
    params = AssembleInput(spec=spec, sources=SourcesProbe(tables=[]), ranges=[1], pages=[[0]], rows=9)

    with pytest.raises(StagedPartsInvalid, match="4 rows are staged where fetchers reported 9"):
        await join_ranges_or_plan_books(objects, params)


async def test_a_tail_that_was_written_again_is_not_taken_for_the_ledger_s() -> None:
    """It may have other pages: the same rows would be in the file twice."""
    objects, tail = AsyncMock(), StagedTailRecord(key="k", bytes=1, sha256=sha256(b"a").hexdigest(), rows=1)
    objects.get.side_effect = [b"a", b"aa"]

    assert await read_tail(objects, tail) == b"a"
    with pytest.raises(StagedPartsInvalid, match="the tail k is not the one"):
        await read_tail(objects, tail)
