// The words of the console in English and Chinese, and the numbers and moments of the reader's language.

/** The languages that there are, by their own names. */
export const LANGUAGES = { en: "English", zh: "中文" };

const words = { en: new Map(), zh: new Map() };
const plurals = { en: new Intl.PluralRules("en"), zh: new Intl.PluralRules("zh") };

/** The reader's language: "en" or "zh". `early.js` has put it on the page. */
export function language() {
  return document.documentElement.lang in LANGUAGES ? document.documentElement.lang : "en";
}

/** The language as Intl wants it. */
export function locale() {
  return language() === "zh" ? "zh-CN" : "en-GB";
}

/** Choose a language for this browser, from now on. The page is drawn again by who calls. */
export function setLanguage(code) {
  document.documentElement.lang = code;
  try {
    localStorage.setItem("haulage.language", code);
  } catch {
    // A browser that keeps nothing asks again next time.
  }
}

/**
 * Add a room's words.
 *
 * @param {string} room - the first part of their keys
 * @param {{en: Object, zh: Object}} both - words by name; a group `{failed: {title: "…"}}` has the keys
 *   `room.failed.title`, and `{one: "…", other: "…"}` is chosen by `n`
 */
export function add(room, both) {
  for (const [code, entries] of Object.entries(both)) flatten(words[code], room, entries);
}

/**
 * The words for a key in the reader's language.
 *
 * @param {string} key - e.g. "transfers.title"
 * @param {Object<string, string|number>} [values] - what stands for `{name}`; numbers are written the reader's way
 * @returns {string}
 */
export function t(key, values = {}) {
  let word = words[language()].get(key);
  if (word === undefined) {
    console.error(`There are no words for ${key} in ${language()}.`);
    return key;
  }
  if (typeof word === "object") word = word[plurals[language()].select(values.n)] ?? word.other;
  return word.replace(/\{(\w+)\}/g, (hole, name) => (name in values ? written(values[name]) : hole));
}

/** Whether there are words for a key, e.g. for states that a newer API may add. */
export function has(key) {
  return words[language()].has(key);
}

/** All words of a language by their keys, for the tests that compare the two. */
export function entries(code) {
  return Object.fromEntries(words[code]);
}

function written(value) {
  return typeof value === "number" ? new Intl.NumberFormat(locale()).format(value) : String(value);
}

function flatten(into, prefix, entries) {
  for (const [name, value] of Object.entries(entries)) {
    const key = `${prefix}.${name}`;
    if (typeof value === "string" || "other" in value) into.set(key, value);
    else flatten(into, key, value);
  }
}
