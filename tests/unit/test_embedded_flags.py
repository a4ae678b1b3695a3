"""The table of server flags: complete, and what production reads is generated from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.embedded import flags
from dev.embedded.flags import ComponentFlag

TABLES = (
    *flags.ENGINE_DYNAMIC,
    *flags.ENGINE_ARGUMENTS,
    flags.ENGINE_DURABLE,
    flags.ENGINE_UNSAFE,
    *flags.GO_FOR_TESTS,
    *flags.UI_ARGUMENTS,
    *flags.DATABASE,
    *flags.DATABASE_LAYOUT,
    *flags.STORE,
    *flags.STORE_ALONE,
    *flags.STORE_INDEX,
)
DYNAMIC_CONFIGURATION = Path(__file__).parents[2] / "deploy/temporal/dynamicconfig.yaml"


@pytest.mark.parametrize("flag", TABLES, ids=lambda flag: f"{flag.name}={flag.value}")
def test_every_flag_says_why_and_what_it_does(flag: ComponentFlag) -> None:
    """A flag without a reason and an effect is a rumour."""
    assert flag.reason
    assert flag.effect


def test_production_reads_what_the_table_says() -> None:
    """Renew the file as its head says when this fails."""
    assert DYNAMIC_CONFIGURATION.read_text() == flags.render_dynamic_configuration()


def test_time_skipping_is_for_tests_alone() -> None:
    """A user's engine does not let workflows skip time."""
    name = "frontend.WorkflowTimeSkippingEnabled=true"
    assert name in flags.build_engine_arguments(ui=False, for_tests=True)
    assert name not in flags.build_engine_arguments(ui=True, for_tests=False)
    assert name.partition("=")[0] not in flags.render_dynamic_configuration()


def test_only_tests_do_without_the_disk() -> None:
    """A user's answer survives a power cut."""
    assert "synchronous=2" in flags.build_engine_arguments(ui=True, for_tests=False)
    assert "synchronous=0" not in flags.build_engine_arguments(ui=True, for_tests=False)
    assert not {"fsync", "full_page_writes"} & flags.build_database_settings(5432, for_tests=False).keys()
    assert flags.build_database_settings(5432, for_tests=True).keys() >= {"fsync", "full_page_writes"}


def test_values_are_written_as_the_engine_reads_them() -> None:
    """Dynamic values are JSON: a duration is quoted, a number is not."""
    arguments = flags.build_engine_arguments(ui=False, for_tests=False)
    assert 'history.timerProcessorMaxTimeShift="10ms"' in arguments
    assert "history.maxInFlightUpdates=1000" in arguments


def test_a_store_of_an_earlier_version_keeps_its_index(tmp_path: Path) -> None:
    """Otherwise all its objects would be gone; an empty folder of that name is made by each start."""
    (tmp_path / "filerldb2").mkdir()
    chosen = flags.build_weed_index_variables(tmp_path)
    assert chosen["WEED_LEVELDB_DIR"] == str(tmp_path / "filerldb")
    (tmp_path / "filerldb2" / "00").mkdir()
    assert flags.build_weed_index_variables(tmp_path) == {}
