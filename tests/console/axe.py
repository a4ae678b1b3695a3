"""The accessibility check: axe-core, fetched by npm where npm is, pinned, and never part of what we ship."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Page

from tests.support.requirements import NPM

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
MEMBER = "package/axe.min.js"
FETCH_SECONDS = 60
GRAVE = ("serious", "critical")
EVERYTHING = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
CONTRAST = ("color-contrast",)
RUN = """
async ([only, grave]) => {
  const { violations } = await axe.run(document, { runOnly: only, resultTypes: ["violations"] });
  const reasons = (node) => node.any.concat(node.all, node.none).map((check) => check.message).join("; ");
  return violations.filter(({ impact }) => grave.includes(impact))
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${reasons(node)}`));
}
"""


def script(folder: Path) -> str:
    """The script of axe-core, kept in a folder; the test is skipped where it cannot be had."""
    archive = folder / f"axe-core-{VERSION}.tgz"
    if not archive.exists():
        _fetch(folder)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert digest == SHA512, "this is not the axe-core that was pinned"
    with tarfile.open(archive) as package:
        member = package.extractfile(MEMBER)
        assert member is not None
        return member.read().decode()


async def grave_faults(page: Page, axe: str, only: Sequence[str] = EVERYTHING) -> list[str]:
    """What axe finds serious or critical on a page as it is now."""
    await page.evaluate(axe)
    found: list[str] = await page.evaluate(RUN, [list(only), list(GRAVE)])
    return found


def _fetch(folder: Path) -> None:
    npm = NPM.require()
    command = [npm, "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS, cwd=folder)
    except (subprocess.SubprocessError, OSError):
        NPM.miss(f"axe-core {VERSION} cannot be fetched by npm from here")
