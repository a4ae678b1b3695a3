"""The console's words: English and Chinese have the same, and whatever the sources say is among them."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page

from api import console

pytestmark = pytest.mark.stack

WORDS = sorted((console.FOLDER / "js" / "words").glob("*.js"))
SCRIPTS = [path for path in (console.FOLDER / "js").rglob("*.js") if path not in WORDS]
# t("page.word") names a word, and t(`page.states.${state}`) all below a prefix.
NAMED = re.compile(r"""\bt\(\s*["']([\w.]+)["']""")
BUILT = re.compile(r"\bt\(\s*`([\w.]+\.)\$\{")
READ = """
async ([base, names]) => {
  const { entries } = await import(`${base}/js/i18n.js`);
  for (const name of names) await import(`${base}/js/words/${name}`);
  return { en: entries("en"), zh: entries("zh") };
}
"""


async def words(page: Page) -> dict[str, dict[str, object]]:
    """All words by language and key."""
    await page.goto("/console")
    found: dict[str, dict[str, object]] = await page.evaluate(
        READ, [console.load_console_files().versioned_path, [path.name for path in WORDS]]
    )
    return found


async def test_both_languages_have_the_same_words(page: Page) -> None:
    """No key is in one of them only, no word is empty, and both fill in the same values."""
    both = await words(page)
    assert both["en"].keys() == both["zh"].keys()
    assert [key for code in both for key, word in both[code].items() if not word] == []
    differing = [key for key in both["en"] if _holes(both["en"][key]) != _holes(both["zh"][key])]
    assert differing == []


async def test_every_word_that_is_said_exists(page: Page) -> None:
    """A key in the sources that nobody wrote words for would be shown as it is."""
    known = (await words(page))["en"].keys()
    source = "\n".join(path.read_text() for path in SCRIPTS)
    assert sorted(set(NAMED.findall(source)) - known) == []
    assert [prefix for prefix in set(BUILT.findall(source)) if not any(key.startswith(prefix) for key in known)] == []


async def test_every_word_is_said(page: Page) -> None:
    """A word that no source says any more is taken out."""
    known = (await words(page))["en"].keys()
    source = "\n".join(path.read_text() for path in SCRIPTS)
    prefixes = tuple(BUILT.findall(source)) or ("-",)
    unsaid = [key for key in known if not key.startswith(prefixes) and not _is_said(key, source)]
    assert unsaid == []


def _is_said(key: str, source: str) -> bool:
    return re.search(rf"""["'`]{re.escape(key)}["'`]""", source) is not None


def _holes(word: object) -> set[str]:
    texts = word.values() if isinstance(word, dict) else [str(word)]
    return {hole for text in texts for hole in re.findall(r"\{(\w+)\}", text)}
