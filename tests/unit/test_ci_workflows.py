"""The workflows of CI and of releases: valid, on the versions that are claimed, with the notes of one version."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release import clients, notes
from tests.support.requirements import GO

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = "github.com/rhysd/actionlint@v1.7.12"
BUILD_SECONDS = 300
CHANGELOG = """\
# Changelog

## Unreleased

- Next.

## 0.2.0 - 2027-03-01

Read this first.

### Added

- More.

## 0.1.0 - 2026-12-01

- First.
"""


def read_jobs(name: str) -> dict[str, Any]:
    """Return the jobs of a workflow."""
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]
    return jobs


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, built by Go, without the network where it has been built before."""
    go, program = GO.require(), str(tmp_path_factory.mktemp("actionlint") / "actionlint")
    module = json.loads(run_go([go, "mod", "download", "-json", ACTIONLINT], Path(program).parent).stdout)
    if error := module.get("Error"):
        GO.miss(f"actionlint cannot be had: {error}")
    done = run_go([go, "build", "-o", program, "./cmd/actionlint"], Path(module["Dir"]))
    if done.returncode:
        GO.miss(f"actionlint cannot be built by this Go: {done.stderr.strip()}")
    return program


def run_go(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Go in a folder."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)


def check(actionlint: str, *paths: Path) -> str:
    """Return what it finds, without what other programs would add where they are installed."""
    command = [actionlint, "-no-color", "-oneline", "-shellcheck=", "-pyflakes=", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.long
def test_every_workflow_is_valid(actionlint: str) -> None:
    """Keys, expressions, versions of actions and labels of runners."""
    assert WORKFLOWS
    assert check(actionlint, *WORKFLOWS) == ""


@pytest.mark.long
def test_a_misspelt_key_is_found(actionlint: str, tmp_path: Path) -> None:
    """It would be ignored, or stop the workflow before its first step."""
    (tmp_path / "ci.yml").write_text(WORKFLOWS[0].read_text().replace("timeout-minutes", "timeout-minute", 1))
    assert 'unexpected key "timeout-minute"' in check(actionlint, tmp_path / "ci.yml")


def test_the_clients_are_tried_on_each_python_that_is_claimed() -> None:
    """By the page, by the check before a release, and by CI."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    [claimed] = re.findall(r"^\| Python, clients \| ([\d., ]+) \| wheel and sdist ", page, re.MULTILINE)
    assert tuple(claimed.split(", ")) == clients.CLAIMED
    job = read_jobs("ci")["clients"]
    assert tuple(job["strategy"]["matrix"]["python"]) == clients.CLAIMED
    assert any("-m tests.release.clients" in step.get("run", "") for step in job["steps"])


def test_the_server_is_tried_on_its_oldest_python() -> None:
    """As root of a Debian, whose packages `.ci/run` installs."""
    job = read_jobs("ci")["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert job["strategy"]["matrix"]["python"][0] == project["requires-python"].removeprefix(">=")
    assert job["container"]["image"] == "python:${{ matrix.python }}-bookworm"
    assert not any("sudo" in step.get("run", "") for step in job["steps"])


def test_a_python_that_is_claimed_and_not_found_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless the ones to try are named."""

    def build(*arguments: str, cwd: Path) -> None:
        assert cwd == ROOT
        Path(arguments[-1]).mkdir()
        (Path(arguments[-1]) / "haulage.whl").touch()

    monkeypatch.setattr(clients, "_run", build)
    monkeypatch.setattr(clients, "_find_python", lambda version: None if version == "3.12" else f"python{version}")
    monkeypatch.setattr(clients, "check_clients", lambda python, _package, _folder: python)

    assert clients.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "haulage.whl: python3.11",
        "haulage.whl: python3.13",
        "haulage.whl: python3.14",
        "Claimed, not found here and not tried: Python 3.12. Name the ones to try.",
    ]
    assert clients.main(["python3.11"]) == 0
    monkeypatch.setattr(clients, "_find_python", str)
    assert clients.main([]) == 0


@pytest.mark.parametrize(
    ("version", "section"),
    [("0.2.0", "Read this first.\n\n### Added\n\n- More."), ("0.1.0", "- First."), ("0.1", ""), ("0.3.0", "")],
)
def test_a_release_has_the_notes_of_its_version_alone(version: str, section: str) -> None:
    """Also the last section, and none where the version has none."""
    assert notes.cut_section(CHANGELOG, version) == section


def test_a_release_without_notes_ends_before_it_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    """With a sentence; the workflow stops at the step that fails."""
    assert notes.main("99.0.0") == 1
    assert "says nothing below `## 99.0.0`" in capsys.readouterr().err
    steps = [step.get("run", "") for step in read_jobs("release")["build"]["steps"]]
    [cutting] = [number for number, run in enumerate(steps) if "-m tests.release.notes" in run]
    [publishing] = [number for number, run in enumerate(steps) if "gh release create" in run]
    assert cutting < publishing
    assert "--notes-file notes.md" in steps[publishing]
