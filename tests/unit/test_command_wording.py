"""What the API says to programs, as commands say it to people: with commands instead of routes."""

from __future__ import annotations

import pytest

from api.http.auth import HEADERLESS_KEY_HINT, KEY_HINT
from cli.wording import replace_routes_by_commands
from domain.secrets import LOCAL_KEYS_HINT

KEYS = f"{LOCAL_KEYS_HINT.removesuffix('.')}; commands take another key from HAULAGE_API_KEY."


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        ("Register it with POST /v1/register_task_type.", "Register it with `haulage tasks register`."),
        ("GET /v1/platforms lists those that there are.", "`haulage ask /v1/platforms` lists those that there are."),
        ("Resume it: POST /v1/platforms/shop-1/resume.", "Resume it: `haulage orders resume shop-1 --reason …`."),
        (
            "Configure it first: PATCH /v1/platforms/shop-1/config; or do so.",
            "Configure it first: `haulage orders set-up shop-1 …`; or do so.",
        ),
        (
            "See PATCH /v1/platforms/default/config.",
            "See `haulage ask /v1/platforms/default/config --method PATCH`.",
        ),
        ("Cancel it first: POST /v1/downloads/dl_1/cancel.", "Cancel it first: `haulage downloads cancel dl_1`."),
        ("See `GET /v1/platforms/a/slices?stale=true`.", "See `haulage ask '/v1/platforms/a/slices?stale=true'`."),
        (
            "POST /v1/projects/{project_id}/keys makes one.",
            "`haulage ask /v1/projects/{project_id}/keys --method POST` makes one.",
        ),
        ("The body: Name `slices`, or all of them.", "The request: Name `slices`, or all of them."),
        (f"A. {HEADERLESS_KEY_HINT}", f"A. Put it into HAULAGE_API_KEY. {KEYS}"),
        (f"A. {KEY_HINT}", f"A. Put it into HAULAGE_API_KEY. {KEYS}"),
        ("Name it in the header Haulage-Project, or use a key of it.", "Use a key of it."),
        ("Check the id that create_task answered.", "Check the id that `haulage tasks create` printed."),
        ("Check the id that POST /v1/downloads answered.", "Check the id that `haulage export` printed."),
        ("limit: 0 is less than 1.", "limit: 0 is less than 1."),
    ],
)
def test_a_sentence_names_commands(said: str, printed: str) -> None:
    """The ones that do the same, and `haulage ask` where there is none; what needs no HTTP stays as it is."""
    assert replace_routes_by_commands(said) == printed


def test_the_ways_to_send_a_key_are_one_sentence() -> None:
    """It had a capital in its middle."""
    assert HEADERLESS_KEY_HINT.startswith(
        "Put it into the address, `http://:hlg_…@host`, or send it as `Authorization: "
    )
