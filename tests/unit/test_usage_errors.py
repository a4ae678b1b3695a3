"""What the command says to nonsense, and to failures outside: one sentence, and the exit code of its kind."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
import typer.main

from cli import asking, command
from cli.__main__ import app, main
from cli.addresses import publish_to_configured_pubsub
from cli.export import choose_file_type
from dev.embedded.environment import MARKER_VARIABLE
from domain import VERSION
from domain.faults import Invalid
from haulage import ApiUnreachable, FileType
from infra.component_settings import ObjectSettings
from infra.objects import ObjectStore
from infra.objects.failures import StoreFailure
from infra.outages import DatabaseUnreachable
from infra.secrets import SecretSealer
from infra.settings import SecretSettings, load_settings_from_environment

ROOT = Path(__file__).parents[2]


def list_commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command with the groups that lead to it."""
    for name, each in sorted(group.commands.items()):
        yield (*path, name)
        if hasattr(each, "commands"):
            yield from list_commands(each, (*path, name))


@pytest.fixture
def commands_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands raise instead of ending the process, whose log is that of the tests."""
    monkeypatch.setattr("infra.log.configure_json_logging", lambda _level: None)
    monkeypatch.setattr(logging.getLogger("haulage"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("haulage"), "propagate", True)
    monkeypatch.setattr("cli.command.flush_and_exit", sys.exit)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Type a command that ends before it does anything; return its exit code."""
    monkeypatch.setattr("sys.argv", ["/somewhere/cli/__main__.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("path", list(list_commands(typer.main.get_command(app))), ids=" ".join)
def test_an_option_that_there_is_not_is_refused_in_one_sentence(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every command, without a frame around it."""
    code = run(monkeypatch, *path, "--nonsense")
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err == f"haulage: No such option: --nonsense. See `haulage {' '.join(path)} --help`.\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("nonsense", "No such command 'nonsense'. See `haulage --help`."),
        ("tasks list", "Missing argument 'task_type'. See `haulage tasks list --help`."),
        ("addresses pause --module zz --reason abc", "Invalid value for '--module': 'zz' is not one of 'ed', 'im',"),
        ("downloads list --limit 0", "Invalid value for '--limit': it should be greater than or equal to 1."),
        ("demo nonsense", "Invalid value: No such system: nonsense. Choose from downloads,"),
    ],
)
def test_a_wrong_value_is_named(
    line: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is allowed, in plain words."""
    assert run(monkeypatch, *line.split()) == 2
    assert capsys.readouterr().err.startswith(f"haulage: {sentence}")


def test_a_group_without_a_command_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing else."""
    assert run(monkeypatch, "downloads") == 2
    assert "Usage: haulage downloads" in capsys.readouterr().out
    assert run(monkeypatch, "--help") == 0


def test_what_a_newcomer_needs_comes_first_in_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It began with what draws the secrets of an installation anew."""
    assert run(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^│ ([a-z]+) ", printed, re.MULTILINE) == [
        *("up", "demo", "export", "ask"),
        *("downloads", "transfers", "orders", "addresses", "tasks"),
        *("api", "worker", "migrate", "doctor", "backup", "restore", "reconcile", "rotate", "reseal", "systems"),
    ]


async def test_an_address_without_a_path_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any API is looked for; it ended with a traceback."""
    assert await asking.send_request(tmp_path, None, "GET", "zz", None) == 2
    assert capsys.readouterr().err.startswith("haulage: zz is no path. One begins with /,")


def test_missing_settings_are_faults() -> None:
    """Commands that need them print a sentence, not a traceback."""
    with pytest.raises(Invalid, match="SEAL holds no key"):
        SecretSealer(SecretSettings())
    with pytest.raises(Invalid, match="must not be empty"):
        ObjectStore(ObjectSettings())


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """That of the tree, and of the wheel of its clients."""
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"haulage {VERSION}\n"


def test_a_command_that_will_go_says_so_and_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, so that a script that reads what it prints goes on."""

    def show_toys() -> None:
        """Show toys."""
        typer.echo("toys")

    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    app.command(deprecated=True)(show_toys)

    assert not run(monkeypatch, "show-toys")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("toys\n", "DeprecationWarning: The command 'show-toys' is deprecated.\n")
    assert not run(monkeypatch, "show-toys", "--help")
    assert "(deprecated)" in capsys.readouterr().out


def test_a_command_that_is_almost_one_is_a_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one mark at its end."""
    assert run(monkeypatch, "exprt") == 2
    assert "Did you mean 'export'? See `haulage --help`.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments"), [("export", ("http://127.0.0.1:1/rows",)), ("ask", ("/v1/systems",)), ("doctor", ())]
)
def test_a_setting_that_is_none_ends_each_command_in_one_sentence(
    name: str,
    arguments: tuple[str, ...],
    commands_in_this_process: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`HAULAGE_API` is taken for `HAULAGE_API_URL` easily."""
    monkeypatch.setenv("HAULAGE_API", "http://127.0.0.1:8080")
    load_settings_from_environment.cache_clear()

    assert run(monkeypatch, name, *arguments) == 2

    said = capsys.readouterr().err
    assert said.startswith("haulage: HAULAGE_API is a group of settings")
    assert "did you mean HAULAGE_API_URL?" in said
    assert said.count("\n") == 1


def test_a_named_api_needs_no_setting_of_this_machine(
    commands_in_this_process: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those of a server, if there are any; a wrong one stopped commands for other machines."""
    monkeypatch.setenv("HAULAGE_API", "http://127.0.0.1:8080")
    monkeypatch.setenv(command.KEY_VARIABLE, "hlg_key")
    monkeypatch.setattr(command, "CONNECT_TIMEOUT_SECONDS", 0)
    load_settings_from_environment.cache_clear()

    assert run(monkeypatch, "ask", "/v1/systems", "--api", "http://127.0.0.1:1") == 3

    assert "HAULAGE_API is" not in capsys.readouterr().err


async def test_a_wrong_setting_ends_what_is_published_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go to the Pub/Sub of this machine's settings, also where an API is named; the exit code was 1."""
    monkeypatch.setenv("HAULAGE_API", "http://127.0.0.1:8080")
    load_settings_from_environment.cache_clear()

    with pytest.raises(command.CommandFault, match="HAULAGE_API is a group of settings"):
        await publish_to_configured_pubsub("topic", [b"{}"])


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_record_that_is_none_is_a_usage_error(
    text: str | None,
    tmp_path: Path,
    commands_in_this_process: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was read within the run of the command, which then ended in a traceback."""
    record = tmp_path / "record.json"
    if text is not None:
        record.write_text(text)

    given = ("--kind", "k", "--credentials", "c", "--record", str(record), "--api", "http://127.0.0.1:1")
    assert run(monkeypatch, "orders", "set-up", "1", "http://127.0.0.1:1", "--project", "p", *given) == 2

    assert f"{record} holds no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prints", "code"), [("command.print_line", 0), ("rich.console.Console().print", 1)], ids=["lines", "console"]
)
def test_output_whose_reader_has_ended_is_no_failure_to_speak_of(prints: str, code: int) -> None:
    """`haulage doctor | head` ended in a traceback."""
    program = f"""
import rich.console
from cli import command

async def main():
    for _ in range(10_000):
        {prints}("a line of the answer")

command.run_and_exit(main())
"""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as output:
        ended = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, stdout=output, stderr=subprocess.PIPE, check=False
        )

    assert (ended.returncode, ended.stderr) == (code, b"")


def test_commands_are_loaded_without_settings() -> None:
    """To load them is a tenth of the start of a command."""
    code = "import sys, cli.__main__; sys.exit('infra.settings' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode


async def test_a_wrong_setting_beside_a_named_folder_ends_a_command_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--data-dir` the settings are read only when the API is looked for; the exit code was 1."""
    monkeypatch.setenv(MARKER_VARIABLE, "1")
    monkeypatch.setenv("HAULAGE_API", "http://127.0.0.1:8080")

    assert await asking.send_request(tmp_path, None, "GET", "/v1/systems", None) == 2

    assert capsys.readouterr().err.startswith("haulage: HAULAGE_API is a group of settings")


@pytest.mark.parametrize(
    ("given", "name", "kind"),
    [
        (None, "a.xlsx", FileType.EXCEL),
        (None, "a.PARQUET", FileType.PARQUET),
        (None, "a.txt", FileType.CSV),
        (None, None, FileType.CSV),
        (FileType.CSV, "a.xlsx", FileType.CSV),
    ],
)
def test_the_type_of_an_export_comes_from_its_name(given: FileType | None, name: str | None, kind: FileType) -> None:
    """Unless it is given."""
    assert choose_file_type(given, Path(name) if name else None) is kind


def test_a_name_of_another_format_is_refused() -> None:
    """Its content would not be what its name says."""
    with pytest.raises(typer.BadParameter, match=r"No export is a \.xls file"):
        choose_file_type(None, Path("a.xls"))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/copy/f"),
            "Nothing more could be written: No space left on",
        ),
        (StoreFailure("The store refused it. Try again.", key="k", code="c"), "The store refused it. Try again."),
        (DatabaseUnreachable("PostgreSQL accepted no connection."), "PostgreSQL accepted no connection."),
        (ApiUnreachable("http://h does not answer."), "http://h does not answer."),
    ],
)
def test_what_fails_outside_ends_a_command_in_a_sentence(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backup onto a full disk ended with a traceback."""

    async def fail() -> NoReturn:
        raise error

    ended: list[int] = []
    monkeypatch.setattr(command, "flush_and_exit", ended.append)
    run: Callable[[Coroutine[Any, Any, None]], object] = command.run_and_exit
    run(fail())
    assert ended == [1]
    printed = capsys.readouterr().err
    assert printed.startswith(f"haulage: {sentence}")
    assert printed.count("\n") == 1
