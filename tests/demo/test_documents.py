"""Every command of the README and of the tutorials, taken from the document and run in a folder like a clone."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.up import EXAMPLES
from dev.stand_ins import PORTS
from tests.demo.conftest import ROOT, Up

README = ROOT / "README.md"
PAGES = [
    README,
    *(pytest.param(page, marks=pytest.mark.long) for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))),
]
RUN_ELSEWHERE = {"make demo", "make test", "make up", *(f"make demo SYSTEM={each.system}" for each in EXAMPLES)}
"""Commands that this suite is, or that other tests of this folder run."""
COMMAND_SECONDS = 120


@dataclass(frozen=True)
class Block:
    """A block of commands, and the lines that the page says it prints; `…` in one stands for anything."""

    commands: str
    printed: tuple[str, ...]


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of commands of a page in order, without those that run elsewhere."""
    blocks = []
    for found in re.finditer(r"```sh\n(.*?)```(?:\s*```text\n(.*?)```)?", text, re.DOTALL):
        lines = [line for line in found[1].splitlines() if line.split("#")[0].strip() not in RUN_ELSEWHERE]
        if any(line and not line.startswith("#") for line in lines):
            blocks.append(Block("\n".join(lines), tuple(filter(None, (found[2] or "").splitlines()))))
    return blocks


def use_ports(commands: str, up: Up) -> str:
    """Return commands with the ports of this start: those in a document are the preferred ones."""
    ports = {f"127.0.0.1:{port}": up.find(name) for name, port in PORTS.items()} | {"127.0.0.1:8080": up.find("API")}
    for written, address in ports.items():
        commands = commands.replace(written, address.removeprefix("http://").rstrip("/"))
    return commands


async def run_page(text: str, up: Up) -> None:
    """Run the blocks of a page in one shell session, and compare what each prints with what the page says."""
    script = ["set -eu"]
    blocks = read_blocks(text)
    for block in blocks:
        script += [use_ports(block.commands, up), "echo; echo ----"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", "\n".join(script)),
        cwd=up.folder,
        env={**clean, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS * len(blocks))
    printed = out.decode()
    assert process.returncode == 0, printed
    for block, shown in zip(blocks, printed.split("\n----\n"), strict=False):
        for line in block.printed:
            pattern = ".*".join(re.escape(piece) for piece in use_ports(line, up).strip().split("…"))
            assert re.search(rf"^\s*{pattern}\s*$", shown, re.MULTILINE), f"{line!r} is not in:\n{shown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_a_page_does_what_it_says(up: Up, page: Path) -> None:
    """Every command succeeds, and prints what stands under it."""
    text = page.read_text()
    assert read_blocks(text), f"{page} shows no commands"

    await run_page(text, up)

    written = sorted(path.name + "/" * path.is_dir() for path in up.folder.iterdir() if path.name != ".venv")
    assert list_ignored(written) == written, "what a reader's commands write must not look like a change of the tree"


def list_ignored(names: list[str]) -> list[str]:
    """Return which of these files git ignores in a clone."""
    command = ["git", "check-ignore", *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


async def test_the_readme_shows_what_is_printed_at_the_start(up: Up) -> None:
    """Line by line, and each line to paste is in it."""
    text = README.read_text()
    [shown] = re.findall(r"```text\n(Ready after .*?)```", text, re.DOTALL)
    for line in use_ports(shown, up).splitlines():
        assert re.search(".*".join(re.escape(piece) for piece in line.split("…")), up.printed), line
    lines = re.findall(r"^  (\.venv/bin/haulage .+)$", up.printed, re.MULTILINE)
    assert [line for line in lines if line not in use_ports(text, up)] == []


@pytest.mark.long
async def test_printed_examples_run(up: Up) -> None:
    """What `haulage up` prints to paste can be pasted, one line for each system."""
    lines = re.findall(r"^  (\.venv/bin/haulage .+)$", up.printed, re.MULTILINE)
    assert len(lines) == len(EXAMPLES)

    await run_page("".join(f"```sh\n{line}\n```\n" for line in lines), up)


async def test_a_page_that_is_wrong_is_noticed(up: Up) -> None:
    """A command that fails, and a line that is not printed."""
    with pytest.raises(AssertionError):
        await run_page("```sh\nfalse\n```\n", up)
    with pytest.raises(AssertionError, match="is not in"):
        await run_page("```sh\necho one\n```\n\n```text\ntwo\n```\n", up)


@pytest.mark.parametrize("name", PORTS)
async def test_each_stand_in_has_a_page(up: Up, name: str) -> None:
    """It shows what the stand-in holds."""
    await run_page(f"```sh\ncurl -sf http://127.0.0.1:{PORTS[name]}/ | grep -c '<h2>'\n```\n", up)
