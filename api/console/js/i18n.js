// The texts of the console in English and Chinese, and the reader's language.

/** The languages, by their own names. */
export const LANGUAGES = { en: "English", zh: "中文" };

const words = { en: new Map(), zh: new Map() };
const plurals = { en: new Intl.PluralRules("en"), zh: new Intl.PluralRules("zh") };

/** Return the reader's language, "en" or "zh", which `early.js` has set on the page. */
export function language() {
  return document.documentElement.lang in LANGUAGES ? document.documentElement.lang : "en";
}

/** Return the locale for Intl. */
export function locale() {
  return language() === "zh" ? "zh-CN" : "en-GB";
}

/** Set the language of this browser. The caller draws the page again. */
export function setLanguage(code) {
  document.documentElement.lang = code;
  try {
    localStorage.setItem("haulage.language", code);
  } catch {
    // Without storage the choice lasts until the page is loaded again.
  }
}

/**
 * Add texts.
 *
 * @param {string} prefix - the first part of their keys
 * @param {{en: Object, zh: Object}} both - texts by name; a group `{failed: {title: "…"}}` has the key
 *   `prefix.failed.title`, and `{one: "…", other: "…"}` is chosen by `n`
 */
export function add(prefix, both) {
  for (const [code, entries] of Object.entries(both)) flatten(words[code], prefix, entries);
}

/**
 * Return the text of a key in the reader's language.
 *
 * @param {string} key - e.g. "transfers.title"
 * @param {Object<string, string|number>} [values] - the values of `{name}`; numbers are formatted
 * @returns {string}
 */
export function t(key, values = {}) {
  let word = words[language()].get(key);
  if (word === undefined) {
    console.error(`There is no text for ${key} in ${language()}.`);
    return key;
  }
  if (typeof word === "object") word = word[plurals[language()].select(values.n)] ?? word.other;
  return word.replace(/\{(\w+)\}/g, (placeholder, name) => (name in values ? formatValue(values[name]) : placeholder));
}

/** Return whether a key has a text, e.g. a state of a newer API. */
export function has(key) {
  return words[language()].has(key);
}

/** Return all texts of a language by their keys, for tests. */
export function entries(code) {
  return Object.fromEntries(words[code]);
}

function formatValue(value) {
  return typeof value === "number" ? new Intl.NumberFormat(locale()).format(value) : String(value);
}

function flatten(into, prefix, entries) {
  for (const [name, value] of Object.entries(entries)) {
    const key = `${prefix}.${name}`;
    if (typeof value === "string" || "other" in value) into.set(key, value);
    else flatten(into, key, value);
  }
}
