// Small components: facts, badges, folds, JSON.

import { clear, h } from "../dom.js";
import { orProblem } from "./problem.js";

/**
 * Labels and values, one under the other.
 *
 * @param {Array<[string, Node|string|number|null]>} pairs - a pair whose value is null or undefined is left out
 */
export function facts(pairs) {
  const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined);
  return h("dl", { class: "facts" }, shown.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

/**
 * A state in one word.
 *
 * @param {string} state - the word to show
 * @param {"ok"|"run"|"wait"|"bad"|"off"} tone
 */
export function badge(state, tone = "off") {
  return h("span", { class: `badge ${tone}` }, state);
}

/** Something that unfolds. `children` may be one function, which is called when it is first unfolded. */
export function fold(summary, ...children) {
  const lazy = typeof children[0] === "function" ? children[0] : null;
  const inside = h("div", { class: "fold-inside" }, lazy ? null : children);
  const element = h("details", { class: "fold" }, h("summary", {}, summary), inside);
  if (lazy) element.addEventListener("toggle", async () => clear(inside, await orProblem(lazy)), { once: true });
  return element;
}

/** A value as JSON, indented; it scrolls by itself. */
export function jsonView(value) {
  return h("pre", { class: "json", tabindex: "0" }, JSON.stringify(value, null, 2));
}
