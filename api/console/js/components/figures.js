// Numbers, sizes, durations and times in the reader's language.

import { h } from "../dom.js";
import { locale } from "../i18n.js";

const UNITS = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];
const FAR = [["year", 31557600], ["month", 2629800], ...UNITS];
const COMPACT_FROM = 100_000;
const TICK_MS = 1000;
const ticking = new Set();

/** A number as text, with at most `digits` after the point. */
export function number(n, digits = 0) {
  return n === null || n === undefined ? "–" : new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }).format(n);
}

/** A number as text that stays short, e.g. "1.2M". */
export function compact(n) {
  if (n < COMPACT_FROM) return number(n);
  return new Intl.NumberFormat(locale(), { notation: "compact", maximumSignificantDigits: 3 }).format(n);
}

/** A size as text, e.g. "12.4 MB" (powers of 1000). */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const names = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  const step = n < 1000 ? 0 : Math.min(names.length - 1, Math.floor(Math.log10(n) / 3));
  const format = { style: "unit", unit: names[step], unitDisplay: step ? "short" : "long", maximumFractionDigits: step ? 1 : 0 };
  return new Intl.NumberFormat(locale(), format).format(n / 1000 ** step);
}

/** A length of time as text, in its two largest units, e.g. "3m 20s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return unit(Math.max(0, Math.round(seconds * 10_000) / 10), "millisecond");
  if (seconds < 10) return unit(Math.round(seconds * 10) / 10, "second");
  const rest = Math.round(seconds);
  const at = UNITS.findIndex(([, size]) => rest >= size);
  const [name, size] = UNITS[at];
  const below = UNITS[at + 1];
  const small = below ? Math.floor((rest % size) / below[1]) : 0;
  const large = unit(Math.floor(rest / size), name);
  return small ? `${large} ${unit(small, below[0])}` : large;
}

/** A time in the reader's time zone. @returns {HTMLTimeElement} "–" where there is none */
export function when(date) {
  if (!date) return h("span", { class: "quiet" }, "–");
  const time = new Date(date);
  const format = { dateStyle: "medium", timeStyle: "medium" };
  return h("time", { datetime: time.toISOString(), title: time.toISOString() }, new Intl.DateTimeFormat(locale(), format).format(time));
}

/** The beginning of a day where the reader is, or of one some days later, for the API. @returns {?string} */
export function day(text, later = 0) {
  if (!text) return null;
  const moment = new Date(`${text}T00:00:00`);
  if (Number.isNaN(moment.getTime())) return text;
  moment.setDate(moment.getDate() + later);
  return moment.toISOString();
}

/** How long ago (or ahead) a time is; the text is kept up to date. @returns {Element} "–" where there is none */
export function ago(date) {
  if (!date) return h("span", { class: "quiet" }, "–");
  return h("relative-time", { datetime: new Date(date).toISOString() });
}

/** `<relative-time datetime>`: "3 minutes ago", with the time as its tool tip. */
class RelativeTime extends HTMLElement {
  connectedCallback() {
    const time = new Date(this.getAttribute("datetime"));
    this.title = new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "long" }).format(time);
    this.time = time.getTime();
    this.tick();
    ticking.add(this);
  }

  disconnectedCallback() {
    ticking.delete(this);
  }

  tick() {
    const seconds = (this.time - Date.now()) / 1000;
    const [name, size] = FAR.find(([, each]) => Math.abs(seconds) >= each) ?? FAR.at(-1);
    const text = new Intl.RelativeTimeFormat(locale(), { numeric: "auto", style: "short" }).format(Math.trunc(seconds / size), name);
    if (this.textContent !== text) this.textContent = text;
  }
}

customElements.define("relative-time", RelativeTime);
setInterval(() => document.hidden || ticking.forEach((element) => element.tick()), TICK_MS);

function unit(n, name) {
  return new Intl.NumberFormat(locale(), { style: "unit", unit: name, unitDisplay: name === "millisecond" ? "short" : "narrow" }).format(n);
}
