// Sections: the parts of a room that are pages of their own, as a row of links.

import { h } from "../dom.js";

/**
 * @param {string} label - what they are parts of
 * @param {Array<[string, string]>} parts - address and word of each
 * @param {string} current - the address of the one that is shown
 */
export function sections(label, parts, current) {
  const entries = parts.map(([href, word]) => h("a", { href, "aria-current": href === current ? "page" : null }, word));
  return h("nav", { class: "sections", "aria-label": label }, entries);
}
