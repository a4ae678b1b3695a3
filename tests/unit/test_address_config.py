"""The configuration of addresses: what a change changes, and what is in force under it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from infra.address_settings import AddressSettings, AllModulesSettings, ModuleSettings
from services.addresses import apply_options_to_settings
from stores.addresses.configuration import (
    AddressModuleOptions,
    AddressModulesOptions,
    AddressOptions,
    replace_sent_options_and_keep_others,
)

BEFORE = AddressOptions(
    threshold=5,
    failed_cycles_max=3,
    modules=AddressModulesOptions(ed=AddressModuleOptions(batch=7, retries=1), im=AddressModuleOptions(batch=9)),
)


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, BEFORE),
        ({"threshold": 6}, BEFORE.model_copy(update={"threshold": 6})),
        ({"threshold": None}, BEFORE.model_copy(update={"threshold": None})),
        ({"modules": None}, BEFORE.model_copy(update={"modules": None})),
        (
            {"modules": {"ed": None}},
            AddressOptions(
                threshold=5, failed_cycles_max=3, modules=AddressModulesOptions(im=AddressModuleOptions(batch=9))
            ),
        ),
        (
            {"modules": {"ed": {"retries": None, "concurrency": 2}}},
            AddressOptions(
                threshold=5,
                failed_cycles_max=3,
                modules=AddressModulesOptions(
                    ed=AddressModuleOptions(batch=7, concurrency=2), im=AddressModuleOptions(batch=9)
                ),
            ),
        ),
        (
            {"modules": {"od": {"batch": 1}}},
            BEFORE.model_copy(
                update={
                    "modules": AddressModulesOptions(
                        ed=AddressModuleOptions(batch=7, retries=1),
                        im=AddressModuleOptions(batch=9),
                        od=AddressModuleOptions(batch=1),
                    )
                }
            ),
        ),
    ],
)
def test_a_change_leaves_what_it_does_not_name(changes: dict[str, object], after: AddressOptions) -> None:
    """Down to the single value of a module; null takes away."""
    assert (
        replace_sent_options_and_keep_others(BEFORE, AddressOptions.model_validate(changes)).non_null_values
        == after.non_null_values
    )


def test_what_is_not_set_comes_from_the_environment() -> None:
    """Of each module, too; what is false or 0 is set."""
    environment = AddressSettings(
        threshold=100,
        auto_purge=True,
        kept_days=40,
        modules=AllModulesSettings(ed=ModuleSettings(base_url="http://ed", batch=3), od=ModuleSettings(batch=4)),
    )
    options = AddressOptions(
        failed_cycles_max=8,
        minimum_share=0,
        auto_purge=False,
        modules=AddressModulesOptions(ed=AddressModuleOptions(batch=5)),
    )

    settings = apply_options_to_settings(environment, options)

    assert (settings.threshold, settings.failed_cycles_max, settings.kept_days) == (100, 8, 40)
    assert (settings.minimum_share, settings.auto_purge) == (0, False)
    assert (settings.modules.ed.base_url, settings.modules.ed.batch, settings.modules.od.batch) == ("http://ed", 5, 4)
    assert apply_options_to_settings(environment, AddressOptions()) == environment


def test_what_no_process_could_start_with_is_refused() -> None:
    """Each option has the limits of its variable, or narrower ones."""
    for wrong in ({"threshold": 0}, {"minimum_share": 0.5}, {"modules": {"ed": {"batch": 501}}}, {"kept_days": 5}):
        with pytest.raises(ValidationError):
            AddressOptions.model_validate(wrong)


def test_deletes_have_a_share_unless_somebody_takes_it() -> None:
    """By default no topic starves."""
    assert AddressSettings().minimum_share > 0
