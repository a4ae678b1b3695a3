"""The next attempt at a slice goes on with stored answers, unless its platform's rows were declared anew meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from activities.orders import slice_attempts
from clients.http import HttpResponse
from clients.platforms import ReplayableAnswerLog
from domain.orders import config
from domain.orders.activity_models import ReadSliceInput
from domain.orders.config import PlatformOptions
from domain.orders.slices import SliceReadPurpose
from domain.orders.windows import TimeWindow
from sims.platforms.dialects.plain import PLAIN
from stores.orders.platforms import PlatformWithSettingsInForce
from stores.tables.orders import OrderPlatform

SETTINGS = config.resolve_settings(1, PlatformOptions(), PlatformOptions(), PLAIN)[0]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARAMS = ReadSliceInput(
    platform="7",
    window=TimeWindow(start=NOON, end=datetime(2026, 3, 2, tzinfo=UTC)),
    purpose=SliceReadPurpose.FIRST,
    settings=SETTINGS,
    holder="slice/1",
)


class Objects(dict[str, bytes]):
    """An object store in memory."""

    async def get(self, key: str) -> bytes:  # type: ignore[override]
        """As the object store."""
        return self[key]

    async def put(self, key: str, body: bytes) -> None:
        """As the object store."""
        self[key] = body


def build_state(declared_revision: int) -> PlatformWithSettingsInForce:
    """A platform whose rows were declared at a revision."""
    row = OrderPlatform(
        platform="7",
        project_id="p",
        kind="plain",
        shop="s",
        base_url="https://shop",
        created_at=NOON,
        declared_revision=declared_revision,
    )
    return PlatformWithSettingsInForce(row, PLAIN, SETTINGS, {})


@pytest.mark.parametrize(("declared_revision", "is_continued"), [(3, True), (8, False)])
async def test_answers_from_before_a_new_declaration_of_rows_are_not_replayed(
    declared_revision: int, is_continued: bool
) -> None:
    """They would replace copies that were stored between them and the declaration, by its former one, and are newer."""
    objects, answers = cast("Any", Objects()), ReplayableAnswerLog()
    answers.add("https://shop/orders?", NOON, HttpResponse(200, CIMultiDictProxy(CIMultiDict[str]()), b"{}"))
    point = await slice_attempts.store_gained_answers_or_keep_resume_point(objects, PARAMS, answers, 3)
    following = PARAMS.model_copy(update={"resume_point": point})
    loaded = await slice_attempts.load_unexpired_answers_of_earlier_attempts(
        objects, following, build_state(declared_revision)
    )
    assert loaded.has_logged_answers is is_continued
