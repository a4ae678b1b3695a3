"""The site of the documents: `python -m tests.support.site` builds it, and fails at a link that leads nowhere.

Pages are taken from the tree as they are and laid beside those that are made from the code, in the folder of the build;
Sphinx makes the site of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from domain import VERSION
from tests.support import site_pages

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "docs"
"""Ignored by git; `index.html` is in its folder `html`."""
SOURCES: Final = ("*.md", "LICENSE", "docs/**/*.*", "excel/README.md", "tests/support/README.md", "bench/results/*")
SECTIONS: Final = {
    "docs/tutorials": "Tutorials",
    "docs/how-to": "How to",
    "docs/reference": "Reference",
    "docs/explanation": "Explanation",
    "docs/adr": "Decisions",
    "docs": "Overview",
    ".": "About",
}
"""The heads of the navigation by the folders of pages; pages of other folders are under the last."""
OPTIONS: Final = {
    "project": "Haulage",
    "html_title": f"Haulage {VERSION}",
    "html_theme": "furo",
    "extensions": "myst_parser",
    "myst_heading_anchors": "6",
    "html_show_copyright": "0",
    "html_copy_source": "0",
    "html_show_sourcelink": "0",
    "smartquotes": "0",
    "suppress_warnings": "misc.highlighting_failure",  # an example may leave something out
    "highlight_language": "none",
    "html_static_path": "style",
    "html_css_files": "site.css",
}
STYLE: Final = "td code { overflow-wrap: anywhere; } td { vertical-align: top; } .content { width: 52em; }\n"
"""Tables have long names in their cells."""


def main() -> int:
    """Build the site; return 1 if a link or an anchor is missing."""
    source, html = FOLDER / "source", FOLDER / "html"
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_sources(source)
    # No configuration file, parallel, warnings are errors and all are printed.
    command = [sys.executable, "-m", "sphinx", "-C", "-q", "-n", "-W", "--keep-going", "-j", "auto", "-b", "html"]
    command += [part for name, value in OPTIONS.items() for part in ("-D", f"{name}={value}")]
    done = subprocess.run([*command, "-d", FOLDER / "doctrees", source, html], check=False)
    if done.returncode == 0:
        sys.stdout.write(f"{html / 'index.html'}: {sum(1 for _ in html.rglob('*.html'))} pages\n")
    return done.returncode


def write_sources(folder: Path) -> None:
    """Lay pages, what they show, and the generated pages into a folder, by their paths in the tree."""
    for pattern in SOURCES:
        for path in ROOT.glob(pattern):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for name, text in site_pages.build_pages().items():
        (folder / name).write_text(text)
    (folder / "style").mkdir()
    (folder / "style" / "site.css").write_text(STYLE)
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    (folder / "index.md").write_text(build_index({name: (folder / name).read_text() for name in pages}))


def build_index(pages: Mapping[str, str]) -> str:
    """Return the first page: its navigation has every page but those of the API, which are below theirs."""
    text = f"# Haulage {VERSION}\n\nNew here? Begin with [what it is](README.md) and [what to read](docs/README.md).\n"
    sections: dict[str, dict[str, str]] = {head: {} for head in SECTIONS.values()}
    for name, page in pages.items():
        head = SECTIONS.get(str(PurePosixPath(name).parent), list(SECTIONS.values())[-1])
        if not name.startswith(site_pages.API_PAGES):
            sections[head][name.removesuffix(".md")] = _read_title(page)
    return text + "".join(site_pages.build_navigation(head, entries) for head, entries in sections.items())


def _read_title(page: str) -> str:
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    return found[1].replace("`", "") if found else "Untitled"


if __name__ == "__main__":
    sys.exit(main())
